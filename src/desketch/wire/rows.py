"""Rows: what a cohort sent, decoded a few rows at a time where that is cheaper than holding all of it.

Ten thousand one-bit messages of a kilobyte are 320 MB of float32, and touching so much memory takes longer than the
arithmetic.  So they stay packed, and are decoded where they are added up.  A one-bit message tells the length of its
vector without being decoded at all: a rotation keeps the length √b of the signs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from desketch.core import compiled
from desketch.keys import Key
from desketch.wire.rotation import rotate_back, scaled_signs
from desketch.wire.trellis import vectors

__all__ = ["Beside", "Decoded", "OneBit", "Rows", "Trellised"]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
_CACHED = 1 << 19  # bytes


class Rows(ABC):
    """n finite vectors of ``width`` float32."""

    width: int

    @abstractmethod
    def __len__(self) -> int:
        """How many."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Floats:
        """The rows from ``start`` up to ``stop``; read only."""

    @abstractmethod
    def chosen(self, which: Sequence[int]) -> Rows:
        """Those rows, in that order."""

    @abstractmethod
    def norms(self) -> Doubles:
        """The length of every row."""

    @property
    def at_once(self) -> int:
        """Rows that stay in a processor's cache in float64: a multiple of 8."""
        return max(8, _CACHED // (8 * max(self.width, 1)) // 8 * 8)

    def weighted_sum(self, factors: Doubles) -> Doubles:
        """Σ factor_i row_i in float64, row after row: the same bits however many rows are decoded at once."""
        total, step = np.zeros(self.width), self.at_once
        for start in range(0, len(self), step):
            _add(total, np.ascontiguousarray(self.part(start, start + step)), factors[start : start + step])
        return total

    def all(self) -> Floats:
        """The whole array, (n, width)."""
        return self.part(0, len(self))


def _add(total: Doubles, rows: Floats, factors: Doubles) -> None:
    if compiled.wanted():
        compiled.add_rows(total, rows, factors)
        return
    for row, factor in zip(rows, factors, strict=True):
        total += row.astype(np.float64) * factor


class Decoded(Rows):
    """Rows that are there as numbers."""

    def __init__(self, values: Floats) -> None:
        self._values, self.width = values, values.shape[1]

    def __len__(self) -> int:
        """How many."""
        return len(self._values)

    def part(self, start: int, stop: int) -> Floats:
        """A view."""
        return self._values[start:stop]

    def chosen(self, which: Sequence[int]) -> Decoded:
        """Those rows, in that order."""
        return Decoded(self._values[list(which)])

    def norms(self) -> Doubles:
        """The length of every row, in float64, a few rows at a time."""
        lengths, step = np.empty(len(self)), self.at_once
        for start in range(0, len(self), step):
            squares = np.square(self._values[start : start + step], dtype=np.float64)
            np.sqrt(squares.sum(axis=1), out=lengths[start : start + step])
        return lengths


class OneBit(Rows):
    """Rows scale Qᵀ s, packed: the last bytes of a payload are the bits of s (`desketch.wire.rotation`)."""

    def __init__(self, payloads: Bytes, *, b: int, key: Key, salts: npt.NDArray[np.uint32], scales: Floats) -> None:
        self._payloads, self.width, self._key, self._salts, self._scales = payloads, b, key, salts, scales

    def __len__(self) -> int:
        """How many."""
        return len(self._payloads)

    def part(self, start: int, stop: int) -> Floats:
        """Rotated back exactly and multiplied once."""
        part = slice(start, stop)
        return scaled_signs(self._payloads[part], self.width, self._key, self._salts[part], self._scales[part])

    def chosen(self, which: Sequence[int]) -> OneBit:
        """Those rows, in that order."""
        some = list(which)
        return OneBit(
            self._payloads[some], b=self.width, key=self._key, salts=self._salts[some], scales=self._scales[some]
        )

    def norms(self) -> Doubles:
        """Scale √b: what float32 makes of each number is not counted."""
        lengths: Doubles = self._scales.astype(np.float64) * np.sqrt(self.width)
        return lengths


class Trellised(Rows):
    """Rows scale Qᵀ c, packed: c the whole numbers that the bits stand for (`desketch.wire.trellis`)."""

    def __init__(
        self, bits: Bytes, *, b: int, per: int, key: Key, salts: npt.NDArray[np.uint32], scales: Floats
    ) -> None:
        self._bits, self.width, self._per, self._key, self._salts, self._scales = bits, b, per, key, salts, scales

    def __len__(self) -> int:
        """How many."""
        return len(self._bits)

    def part(self, start: int, stop: int) -> Floats:
        """Rotated back and multiplied once."""
        part = slice(start, stop)
        codes = vectors(self._bits[part], self.width, self._per).astype(np.float32)
        with np.errstate(over="ignore"):
            return rotate_back(codes, self._key, self._salts[part].tolist()) * self._scales[part, None]

    def chosen(self, which: Sequence[int]) -> Trellised:
        """Those rows, in that order."""
        some = list(which)
        return Trellised(
            self._bits[some],
            b=self.width,
            per=self._per,
            key=self._key,
            salts=self._salts[some],
            scales=self._scales[some],
        )

    def norms(self) -> Doubles:
        """Scale |c|: what float32 makes of each number is not counted."""
        lengths, step = np.empty(len(self)), self.at_once
        for start in range(0, len(self), step):
            codes = vectors(self._bits[start : start + step], self.width, self._per).astype(np.float64)
            lengths[start : start + step] = np.sqrt(np.square(codes).sum(axis=1))
        return lengths * self._scales


class Beside(Rows):
    """Rows with a few more numbers each at their end."""

    def __init__(self, rows: Rows, extra: Floats) -> None:
        self._rows, self._extra, self.width = rows, extra, rows.width + extra.shape[1]

    def __len__(self) -> int:
        """How many."""
        return len(self._rows)

    def part(self, start: int, stop: int) -> Floats:
        """Side by side."""
        return np.concatenate([self._rows.part(start, stop), self._extra[start:stop]], axis=1)

    def chosen(self, which: Sequence[int]) -> Beside:
        """Those rows, in that order."""
        return Beside(self._rows.chosen(which), self._extra[list(which)])

    def norms(self) -> Doubles:
        """By Pythagoras."""
        lengths: Doubles = np.sqrt(np.square(self._rows.norms()) + np.square(self._extra, dtype=np.float64).sum(axis=1))
        return lengths
