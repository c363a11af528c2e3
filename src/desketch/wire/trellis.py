"""A trellis code: V numbers a bit, near the least error that any code of that rate can have.

A message is T = ⌈b/V⌉ bits on a circle (long ones on several, of `CIRCLE` bits).  Bit i says V whole numbers, those
that a public table has for the last `MEMORY` bits up to it; so every bit takes part in ten choices, and 2^T vectors
that are as good as random ones need no code book.  Reading is a look-up, writing Viterbi's search for the nearest.

Of independent Gaussian numbers, which a rotation makes of any vector (``rotation.py``), the nearest code vector keeps
the share c of the energy; scaled to be unbiased it has the relative error ω = 1/c - 1:

=================  ==========  ==========  ==========  =========
bits a number       1           ½           ⅓          signs: 1
=================  ==========  ==========  ==========  =========
c                   0.72        0.46        0.34        0.64
the bound 1 - 4⁻ᴿ   0.75        0.50        0.37        0.75
=================  ==========  ==========  ==========  =========

(Ungerboeck, "Channel coding with multilevel/phase signals", IEEE Trans. Inf. Theory 1982; Marcellin and Fischer,
"Trellis coded quantization of memoryless and Gauss-Markov sources", IEEE Trans. Commun. 1990; the sliding window over a
random table after Tseng, Sun, Hou, De Sa, "QTIP", NeurIPS 2024.)  Everything here is in whole numbers, so every
implementation finds the same bits (``docs/spec.md``).
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from desketch.core import compiled
from desketch.keys import Key

__all__ = ["CIRCLE", "FEWEST", "MEMORY", "RATES", "nearest", "table", "vectors"]

Bytes = npt.NDArray[np.uint8]
Whole = npt.NDArray[np.int32]
MEMORY = 10
"""Bits that choose a table's row."""
CIRCLE = 2048
"""Bits that go in a circle of their own, at most."""
RATES = (1, 2, 3)
"""Numbers a bit."""
FEWEST = 20
"""Bits of a circle below which the nearest vector may be far: few choices, and the path must close."""
_STATES = 1 << MEMORY
_AHEAD = 4 * MEMORY  # steps on either side of the seam from which a search knows where to cross it
_UNIT = {
    1: 43.0,
    2: 52.0,
    3: 61.0,
}  # what a number of the average size is multiplied by, so that vectors are found near it
_LARGEST = 1023
_FAR = 1 << 28  # more than any path can cost beside another


@cache
def table(V: int) -> npt.NDArray[np.int8]:
    """The (1024, V) odd numbers of a rate: sums of four random bytes, nearly Gaussian with mean 0 and deviation 37."""
    words = np.asarray(Key(0).fold_in("trellis", V).words(_STATES * V), dtype="<u4")
    sums = words.view(np.uint8).reshape(_STATES, V, 4).sum(axis=2, dtype=np.int64)
    found = (2 * (sums >> 3) - 127).astype(np.int8)
    found.flags.writeable = False
    return found


def vectors(bits: Bytes, b: int, V: int) -> npt.NDArray[np.int8]:
    """The numbers (n, b) that packed bits stand for: low bit of a byte first, the newest bit of a row on top."""
    T = -(-b // V)
    unpacked = np.unpackbits(bits, axis=1, bitorder="little")[:, :T]
    states = np.zeros(unpacked.shape, dtype=np.int64)
    for start, stop in _circles(T):
        circle = unpacked[:, start:stop].astype(np.int64)
        for age in range(MEMORY):
            states[:, start:stop] |= np.roll(circle, age, axis=1) << (MEMORY - 1 - age)
    return table(V)[states].reshape(len(bits), T * V)[:, :b]


def nearest(x: npt.NDArray[np.float32], V: int) -> Bytes:
    """Packed bits (n, ⌈T/8⌉) of the vectors nearest to the rows of x (n, b), but for their length."""
    n, b = x.shape
    T = -(-b // V)
    goals = np.zeros((n, T, V), dtype=np.int32)
    goals.reshape(n, T * V)[:, :b] = _goals(x, V)
    if compiled.wanted():
        return compiled.trellis(goals, table(V))
    bits = np.concatenate([_circle(goals[:, start:stop], V) for start, stop in _circles(T)], axis=1)
    return np.packbits(bits, axis=1, bitorder="little")


def _goals(x: npt.NDArray[np.float32], V: int) -> Whole:
    """The numbers on the table's scale."""
    wide = x.astype(np.float64)
    rms = np.sqrt(np.square(wide).mean(axis=1, keepdims=True))
    scaled = np.divide(wide * _UNIT[V], rms, out=np.zeros(x.shape), where=rms > 0)
    return np.clip(np.rint(scaled), -_LARGEST, _LARGEST).astype(np.int32)


def _circles(T: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(0, T, CIRCLE), T]))


def _circle(goals: Whole, V: int) -> Bytes:
    """The bits (n, T) of a circle: where the best path crosses the seam first, then the best one that closes there."""
    T = goals.shape[1]
    if T < MEMORY:
        return _all_of_them(goals, V)
    around = np.arange(-_AHEAD, _AHEAD) % T
    seam = _search(goals[:, around], V)[:, _AHEAD - 1]
    return (_search(goals, V, seam) >> MEMORY - 1).astype(np.uint8)


def _search(goals: Whole, V: int, seam: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """The states (n, T) of the path of least Σ |table[state] - goal|², from ``seam`` to ``seam`` if given."""
    n, T, _ = goals.shape
    rows, every = table(V).astype(np.int64), np.arange(n)
    own = np.square(rows).sum(axis=1)
    cost = np.zeros((n, _STATES), dtype=np.int64)
    if seam is not None:
        cost += _FAR
        cost[every, seam] = 0
    second = np.zeros((T, n, _STATES // 2), dtype=bool)  # which of the two states 2 j, 2 j + 1 leads on to j
    for t in range(T):
        second[t] = cost[:, 1::2] < cost[:, ::2]
        cost = np.tile(np.minimum(cost[:, ::2], cost[:, 1::2]), 2) + (own - 2 * (goals[:, t].astype(np.int64) @ rows.T))
    states = np.empty((n, T), dtype=np.int64)
    state = cost.argmin(axis=1) if seam is None else seam
    for t in reversed(range(T)):
        states[:, t] = state
        half = state & (_STATES // 2 - 1)
        state = 2 * half + second[t, every, half]
    return states


def _all_of_them(goals: Whole, V: int) -> Bytes:
    """A circle of fewer bits than a state has: the first of all its vectors that are nearest."""
    n, T, _ = goals.shape
    bits = np.unpackbits(np.arange(1 << T, dtype="<u2").view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")[:, :T]
    every = vectors(np.packbits(bits, axis=1, bitorder="little"), T * V, V).astype(np.int64)
    cost = np.square(every).sum(axis=1) - 2 * (goals.reshape(n, T * V).astype(np.int64) @ every.T)
    return bits[cost.argmin(axis=1)]
