"""Sparse sketches: CountSketch and the sparse embeddings I and II.

They are the paper's Definitions "Count-sketch matrix", "Sparse embedding matrix I" and "Sparse embedding matrix II".

*Layouts.*  ``textbook`` hashes every coordinate.  ``block`` hashes blocks of 64: coordinate i goes to row
(H(i div 64) + i mod 64) mod M, so a block is 64 signed numbers added at one offset, and no scatter is needed.

*Second moment.*  Columns have norm 1 and independent signs, so with p_ij = E[(RᵀR)_ij²],
E|RᵀR g|² = Σ_j g_j² (1 + Σ_{i≠j} p_ij) and alpha = max_j Σ_{i≠j} p_ij, reached by a unit vector.

- textbook: p_ij = 1/b for all pairs, alpha = (d - 1)/b.
- block, CountSketch and sparse2: p = 0 inside a block (64 different rows) and 1/b across, so the worst j lies in the
  smallest block, the last one of r coordinates: alpha = (d - r)/b.
- block, sparse1: two offsets of one block differ by a given non-zero amount with probability 1/(b - 1), so inside a
  block p = nnz (nnz - 1)/(nnz² (b - 1)) <= 1/b and alpha = (d - r)/b + (r - 1)(nnz - 1)/(nnz (b - 1)).

*Sparse2 when nnz does not divide b.*  Table j has m_j = floor((j + 1) b/nnz) - floor(j b/nnz) rows and weight
sqrt(m_j/b) in place of 1/sqrt(nnz).  Column norms stay Σ m_j/b = 1 and p = Σ_j (m_j/b)²/m_j = 1/b stays exact.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import numpy.typing as npt

from desketch.errors import SketchError
from desketch.keys import Key
from desketch.sketches.base import Family, integer
from desketch.sketches.hashing import buckets, signs

if TYPE_CHECKING:
    from desketch.sketches.reference import LinearMap

__all__ = ["BLOCK", "CountSketch", "Sparse1", "Sparse2"]

BLOCK = 64
DEFAULT_NNZ = 4
LAYOUTS = ("block", "textbook")
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Hashed(Family):
    """``nnz`` signed entries in every column, at hashed rows."""

    layout: str = "block"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise SketchError(f"layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")

    @property
    @abstractmethod
    def entries(self) -> int:
        """Non-zero entries in a column."""

    @property
    @abstractmethod
    def tables(self) -> list[tuple[int, int]]:
        """``(first row, rows)`` that each of the ``entries`` layers hashes into."""

    @abstractmethod
    def offsets(self, key: Key, n: int) -> Index:
        """``(entries, n)`` hashed rows, relative to their table, of n coordinates or blocks."""

    @property
    def blocked(self) -> bool:
        """Whether blocks of 64 are hashed: asked for, and every table has 64 rows."""
        return self.layout == "block" and min(m for _, m in self.tables) >= BLOCK

    @property
    def last(self) -> int:
        """Coordinates in the last, smallest block."""
        return (self.d - 1) % BLOCK + 1 if self.blocked else 1

    @property
    def alpha(self) -> float:
        """(d - r)/b, r the size of the smallest block; 1 in the textbook layout."""
        return (self.d - self.last) / self.b

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """The size of the entries in each of the b rows."""
        return np.full(self.b, 1 / math.sqrt(self.entries))

    def reference(self, key: Key) -> LinearMap:
        """Rows and signs of every column, layer by layer."""
        from desketch.sketches.reference import Columns

        first, modulus = (np.array(column)[:, None] for column in zip(*self.tables, strict=True))
        if self.blocked:
            i = np.arange(self.d)
            rows = (self.offsets(key, -(-self.d // BLOCK))[:, i // BLOCK] + i % BLOCK) % modulus
        else:
            rows = self.offsets(key, self.d)
        layers = np.stack([signs(key, self.d, j) for j in range(self.entries)])
        return Columns(self.b, self.scale, first + rows, layers)

    def sizes(self) -> dict[str, float]:
        """The entries of a column, and whether blocks are hashed."""
        return {"nnz": self.entries, "blocked": self.blocked}

    def details(self) -> str:
        """Layout and sparsity."""
        fallback = self.layout == "block" and not self.blocked
        layout = f"layout=textbook (block needs {BLOCK} rows)" if fallback else f"layout={self.layout}"
        return layout if self.name == "countsketch" else f"nnz={self.entries}, {layout}"


@final
@dataclass(frozen=True, kw_only=True)
class CountSketch(Hashed):
    """One ±1 in every column."""

    name: ClassVar[str] = "countsketch"

    @property
    def entries(self) -> int:
        """One."""
        return 1

    @property
    def tables(self) -> list[tuple[int, int]]:
        """One table of all rows."""
        return [(0, self.b)]

    @property
    def alpha_paper(self) -> float:
        """3d/b."""
        return 3 * self.d / self.b

    def offsets(self, key: Key, n: int) -> Index:
        """The 2-wise independent buckets."""
        return buckets(key, n, self.b)[None]


@dataclass(frozen=True, kw_only=True)
class SparseEmbedding(Hashed):
    """``nnz`` entries in every column."""

    nnz: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nnz", integer("nnz", min(DEFAULT_NNZ, self.b) if self.nnz is None else self.nnz))
        if not 1 <= self.entries <= self.b:
            raise SketchError(f"nnz must be between 1 and b={self.b}, got {self.nnz}; lower nnz or raise b")

    @property
    def entries(self) -> int:
        """``nnz``, or 4 if there are as many rows."""
        assert self.nnz is not None
        return self.nnz

    @property
    def alpha_paper(self) -> float:
        """2d/b."""
        return 2 * self.d / self.b


@final
@dataclass(frozen=True, kw_only=True)
class Sparse1(SparseEmbedding):
    """``nnz`` different rows in every column, uniformly without replacement; entries ±1/sqrt(nnz)."""

    name: ClassVar[str] = "sparse1"

    @property
    def tables(self) -> list[tuple[int, int]]:
        """Every layer hashes into all rows."""
        return [(0, self.b)] * self.entries

    @property
    def alpha(self) -> float:
        """(d - r)/b + (r - 1)(nnz - 1)/(nnz (b - 1)), r the size of the smallest block; 1 in the textbook layout."""
        inside = (self.last - 1) * (self.entries - 1) / (self.entries * max(self.b - 1, 1))
        return (self.d - self.last) / self.b + inside

    def offsets(self, key: Key, n: int) -> Index:
        """Floyd's subset: layer j draws u in [b - nnz + j + 1] and takes the last of them instead if u is taken."""
        rows = np.empty((self.entries, n), dtype=np.int64)
        for j in range(self.entries):
            last = self.b - self.entries + j
            u = buckets(key, n, last + 1, j)
            rows[j] = np.where((rows[:j] == u).any(axis=0), last, u)
        return rows


@final
@dataclass(frozen=True, kw_only=True)
class Sparse2(SparseEmbedding):
    """One row in each of ``nnz`` sub-tables; entries ±sqrt(m_j/b), which is ±1/sqrt(nnz) if nnz divides b."""

    name: ClassVar[str] = "sparse2"

    @property
    def tables(self) -> list[tuple[int, int]]:
        """Sub-tables as equal as can be."""
        edges = [j * self.b // self.entries for j in range(self.entries + 1)]
        return [(first, end - first) for first, end in pairwise(edges)]

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """sqrt(m_j/b) in the rows of table j."""
        return np.concatenate([np.full(m, math.sqrt(m / self.b)) for _, m in self.tables])

    def offsets(self, key: Key, n: int) -> Index:
        """The 2-wise independent buckets of every sub-table."""
        return np.stack([buckets(key, n, m, j) for j, (_, m) in enumerate(self.tables)])
