"""OnDemand: a sequence whose members are made when they are asked for, so that a million of them cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

__all__ = ["OnDemand", "OnDemandTable", "looked_at"]

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """``make(0)``, ..., ``make(n - 1)``; what was made is not kept.

    >>> squares = OnDemand(1_000_000, lambda i: i * i)
    >>> squares[3], squares[-1], len(squares)
    (9, 999998000001, 1000000)
    """

    def __init__(self, n: int, make: Callable[[int], T]) -> None:
        self._n, self._make = n, make

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._make(i) for i in range(self._n)[place]]
        return self._make(range(self._n)[place])


class OnDemandTable(Mapping[int, float]):
    """Positive numbers ``value(c)`` by c = 0..n-1, computed when first asked for unless they were noted before."""

    def __init__(self, n: int, value: Callable[[int], float]) -> None:
        self._n, self._value = n, value
        self._known = np.zeros(n)  # 0: not yet; memory that is never touched is never taken

    def note(self, c: int, value: float) -> None:
        """Remember a number that was come by in another way."""
        self._known[c] = value

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._n))

    def __getitem__(self, c: int) -> float:
        if not 0 <= c < self._n:
            raise KeyError(c)
        if not self._known[c]:
            self.note(c, self._value(c))
        return float(self._known[c])


def looked_at(sequence: Sequence[T]) -> Sequence[T]:
    """What may be looked at before anything is asked for: all of a list or tuple, of other sequences the first."""
    return sequence if isinstance(sequence, list | tuple) else [sequence[0]] if len(sequence) else []
