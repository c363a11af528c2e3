"""A table of independent count sketches whose row-wise medians find the heavy hitters of a vector.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", ICALP 2002: with R_1 .. R_rows independent
CountSketches of R^d, the table of x is (R_j x)_j and entry i of x is estimated by median_j (R_jᵀ R_j x)_i.
"""

from __future__ import annotations

import torch
from torch import Tensor

from desketch.keys import Key
from desketch.sketches import draw

__all__ = ["CountSketchTable"]


class CountSketchTable:
    """``rows`` CountSketches with ``columns`` buckets each, drawn once for a whole run."""

    def __init__(self, *, d: int, rows: int, columns: int, key: Key) -> None:
        self.d, self.rows, self.columns = d, rows, columns
        self._R = [draw("countsketch", d=d, b=columns, key=key.fold_in("row", j)) for j in range(rows)]

    def sketch(self, x: Tensor) -> Tensor:
        """``(..., d) -> (..., rows, columns)``, linear."""
        return torch.stack([R.sketch(x) for R in self._R], dim=-2)

    def estimate(self, table: Tensor) -> Tensor:
        """``(rows, columns) -> (d,)``: the median over rows of each entry's estimate."""
        return torch.stack([R.desketch(row) for R, row in zip(self._R, table, strict=True)]).median(dim=0).values
