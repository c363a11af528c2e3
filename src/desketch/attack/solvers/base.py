"""Solver: an iterator of (x, loss) that walks an `Objective` from a start; every optimiser has this one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from desketch.attack.objective import Objective

__all__ = ["Iterate", "Solver"]


class Iterate(NamedTuple):
    """A point and L_R there."""

    x: Tensor
    loss: float


class Solver(ABC):
    """Hyper-parameters of an optimiser; the walk itself is `iterate`."""

    name: str

    @abstractmethod
    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Yield the start, then one iterate a step; stop when no progress is possible."""
