"""A public random rotation Q for the one-bit code, one per message, exact in float32 on sign vectors.

Q = B D₄ P₃ B D₃ P₂ B D₂ P₁ B D₁ with random signs D, random orders P of coordinates (j taken from (a j + c) mod b), and
B the orthonormal Hadamard transform of consecutive groups: as many of 64 coordinates as fit, then of 16, 4 and 1.  All
of it is drawn from stream ``salt`` of a key, so messages of different senders are rotated independently and their
rounding errors average out.

Why four passes.  One or two leave concentrated vectors where the sign code errs in one direction: (1, ½, 0, ...) comes
back as (1.25, 0, ...).  After four the error of the mean is below two per cent for every b >= 17 and every vector
tried, below one from b = 32 on (``benchmarks/one_bit_codes.py``); `MIXED` is that limit.  What is left comes from ties:
a one-hot vector is rotated to exact zeros in places (a tenth of them at b = 16), whose signs then follow whatever small
numbers stand beside the large one.

Why exact.  Entries of the transforms are ±1/√h with √h a power of two, at most 8: on a vector of signs everything is a
multiple of 2⁻¹² and at most 2¹² in magnitude, which float32 holds whatever the order of summation.  That is what keeps
decoded replicas bit-equal on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt

from desketch.keys import Key

__all__ = ["MIXED", "rotate", "rotate_back"]

Floats = npt.NDArray[np.float32]
MIXED = 17
"""The least b at which Q is random enough for the one-bit code."""
_PASSES = 4
_LARGEST = 64
_HEAD = 8  # words of a stream before its signs: a₁ c₁ a₂ c₂ a₃ c₃ and two spare ones
_CHUNK = 1 << 20  # numbers rotated at a time


def rotate(x: Floats, key: Key, salts: Sequence[int]) -> Floats:
    """Q x for the rows of ``x``, shape ``(n, b)``, each by the Q of its salt."""
    return _by_chunks(_forth, x, key, salts)


def rotate_back(y: Floats, key: Key, salts: Sequence[int]) -> Floats:
    """Qᵀ y for the rows of ``y``, shape ``(n, b)``, each by the Q of its salt."""
    return _by_chunks(_back, y, key, salts)


def _forth(x: Floats, key: Key, salts: Sequence[int]) -> Floats:
    signs, orders = _draw(key, tuple(salts), x.shape[1])
    for k in range(_PASSES):
        x = _mix(x * signs[k])
        if k < len(orders):
            x = np.take_along_axis(x, orders[k], axis=1)
    return x


def _back(y: Floats, key: Key, salts: Sequence[int]) -> Floats:
    signs, orders = _draw(key, tuple(salts), y.shape[1])
    for k in reversed(range(_PASSES)):
        if k < len(orders):
            scattered = np.empty_like(y)
            np.put_along_axis(scattered, orders[k], y, axis=1)
            y = scattered
        y = _mix(y) * signs[k]
    return y


def _by_chunks(
    turn: Callable[[Floats, Key, Sequence[int]], Floats], x: Floats, key: Key, salts: Sequence[int]
) -> Floats:
    step = max(1, _CHUNK // max(1, x.shape[1]))
    if len(x) <= step:
        return turn(x, key, salts)
    parts = [turn(x[i : i + step], key, salts[i : i + step]) for i in range(0, len(x), step)]
    return np.concatenate(parts)


@lru_cache(maxsize=2)  # a cohort in one process is rotated twice: by its clients and by its server
def _draw(key: Key, salts: tuple[int, ...], b: int) -> tuple[Floats, list[npt.NDArray[np.int64]]]:
    """The signs, (passes, n, b), and the orders, (n, b) each: coordinate j is taken from (a j + c) mod b."""
    count = _HEAD + -(-_PASSES * b // 32)
    words = key.streams(count, salts).astype("<u4")
    bits = np.unpackbits(words[:, _HEAD:].view(np.uint8), axis=1, bitorder="little")[:, : _PASSES * b]
    signs = (np.float32(1) - np.float32(2) * bits.astype(np.float32)).reshape(len(salts), _PASSES, b)
    j = np.arange(b, dtype=np.int64)
    orders = []
    for k in range(_PASSES - 1):
        a = np.array([_prime_to(b, int(word)) for word in words[:, 2 * k]], dtype=np.int64)
        c = words[:, 2 * k + 1].astype(np.int64) % b
        orders.append((j * a[:, None] + c[:, None]) % b)
    return signs.transpose(1, 0, 2), orders


def _prime_to(b: int, word: int) -> int:
    """The first number prime to b among word mod b, word mod b + 1, ..."""
    a = word % b
    while gcd(a, b) != 1:
        a += 1
    return a


@lru_cache(maxsize=8)
def _hadamard(size: int) -> Floats:
    """Sylvester's Hadamard matrix over the square root of its size."""
    H = np.ones((1, 1), dtype=np.float32)
    while len(H) < size:
        H = np.block([[H, H], [H, -H]])
    return H / np.float32(np.sqrt(size))


def _mix(x: Floats) -> Floats:
    """B x: groups of 64 consecutive coordinates, what is left in groups of 16, 4 and 1."""
    n, b = x.shape
    out, start, h = np.empty_like(x), 0, _LARGEST
    while start < b:
        end = start + (b - start) // h * h
        out[:, start:end] = (x[:, start:end].reshape(-1, h) @ _hadamard(h)).reshape(n, end - start)
        start, h = end, h // 4
    return out
