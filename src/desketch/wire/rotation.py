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

On other vectors the order is fixed all the same: numbers are divided by √h, then added in butterflies at distance 1, 2,
4, ....  ``src/_kernels/rotation.h`` does the same operations without an array for the signs and orders; what is here is
its oracle, and the path without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, isqrt

import numpy as np
import numpy.typing as npt

from desketch.core import compiled
from desketch.keys import Key

__all__ = ["MIXED", "rotate", "rotate_back", "scaled_signs"]

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
MIXED = 17
"""The least b at which Q is random enough for the one-bit code."""
_PASSES = 4
_LARGEST = 64
_HEAD = 8  # words of a stream before its signs: a₁ c₁ a₂ c₂ a₃ c₃ and two spare ones
_CHUNK = 1 << 20  # numbers the reference rotates at a time


def rotate(x: Floats, key: Key, salts: Sequence[int]) -> Floats:
    """Q x for the rows of ``x``, shape ``(n, b)``, each by the Q of its salt."""
    return _turn(x, key, salts, back=False)


def rotate_back(y: Floats, key: Key, salts: Sequence[int]) -> Floats:
    """Qᵀ y for the rows of ``y``, shape ``(n, b)``, each by the Q of its salt."""
    return _turn(y, key, salts, back=True)


def scaled_signs(payloads: Bytes, b: int, key: Key, salts: npt.NDArray[np.uint32], scales: Floats) -> Floats:
    """The vectors scale Qᵀ s, s the signs that the last bytes of every payload hold: low bit first, 1 is negative."""
    if compiled.wanted() and 0 < b < 2**31:
        return compiled.decode_signs(key.bits, salts, scales, payloads, b)
    bits = np.unpackbits(payloads[:, payloads.shape[1] - (b + 7) // 8 :], axis=1, bitorder="little")[:, :b]
    signs = np.float32(1) - np.float32(2) * bits.astype(np.float32)
    with np.errstate(over="ignore"):
        return rotate_back(signs, key, salts.tolist()) * scales[:, None]


def _turn(x: Floats, key: Key, salts: Sequence[int], *, back: bool) -> Floats:
    if x.dtype == np.float32 and compiled.wanted() and 0 < x.shape[1] < 2**31:
        return compiled.rotate(key.bits, salts, x, back=back)
    step = max(1, _CHUNK // max(1, x.shape[1]))
    out = np.empty_like(x)
    for i in range(0, len(x), step):
        out[i : i + step] = (_back if back else _forth)(x[i : i + step], key, salts[i : i + step])
    return out


def _forth(x: Floats, key: Key, salts: Sequence[int]) -> Floats:
    signs, orders = _draw(key, salts, x.shape[1])
    for k in range(_PASSES):
        x = _mix(x * signs[k])
        if k < len(orders):
            x = np.take_along_axis(x, orders[k], axis=1)
    return x


def _back(y: Floats, key: Key, salts: Sequence[int]) -> Floats:
    signs, orders = _draw(key, salts, y.shape[1])
    for k in reversed(range(_PASSES)):
        if k < len(orders):
            scattered = np.empty_like(y)
            np.put_along_axis(scattered, orders[k], y, axis=1)
            y = scattered
        y = _mix(y) * signs[k]
    return y


def _draw(key: Key, salts: Sequence[int], b: int) -> tuple[Floats, list[npt.NDArray[np.int64]]]:
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


def _mix(x: Floats) -> Floats:
    """B x: groups of 64 consecutive coordinates, what is left in groups of 16, 4 and 1."""
    n, b = x.shape
    out, start, h = np.empty_like(x), 0, _LARGEST
    while start < b:
        end = start + (b - start) // h * h
        out[:, start:end] = _hadamard(x[:, start:end].reshape(-1, h)).reshape(n, end - start)
        start, h = end, h // 4
    return out


def _hadamard(groups: Floats) -> Floats:
    """Sylvester's transform of every row over the root of its length, by butterflies at distance 1, 2, 4, ..."""
    m, h = groups.shape
    y = np.ascontiguousarray(groups.T) / groups.dtype.type(isqrt(h))  # coordinates first: every sum is one of long rows
    distance = 1
    while distance < h:
        low, high = np.moveaxis(y.reshape(h // (2 * distance), 2, distance, m), 1, 0)
        y = np.stack([low + high, low - high], axis=1).reshape(h, m)
        distance *= 2
    return y.T
