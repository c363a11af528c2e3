"""The hash families of spec v1: 5-wise independent signs, 2-wise independent buckets, exact samples.

Each hash is an algebraic family with a proof, plus Philox words on top.  Adding something independent keeps k-wise
independence, so the proof stays, while the words remove the heavy tails that bare k-wise families have on structured
input.

*Signs.*  ``sign(x) = s0 ^ <s1, x> ^ <s2, x³>`` with x in GF(2³²) is the dual of a BCH code of distance 6: the vectors
(1, x, x³) of any five different points are linearly independent over GF(2), so uniform s0, s1, s2 give 5-wise
independent bits.

*Buckets.*  ``a_0 + Σ_{bits k of x} a_{k+1} mod M`` with uniform ``a``: two different points differ in some bit k;
``a_{k+1}`` makes the difference uniform and ``a_0`` one of the two values, so the pair is uniform on [M]².

*Samples.*  The first ``b`` different values of a stream of exactly uniform numbers are a uniform subset.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from desketch.keys import Key

__all__ = [
    "BUCKET",
    "SAMPLE",
    "SEED",
    "SIGN",
    "bch_bits",
    "buckets",
    "gf_mul",
    "linear_hash",
    "signs",
    "stream",
    "subset",
]

Bits = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int64]

GF32_POLYNOMIAL = (1 << 32) | 0x8D
"""x³² + x⁷ + x³ + x² + 1, irreducible over GF(2)."""

SEED, BUCKET, SIGN, SAMPLE = range(4)
"""What a stream of table j is for; the stream's number is 4 j + role."""


def stream(table: int, role: int) -> int:
    """Return the number of the stream that serves ``table`` in ``role``."""
    return 4 * table + role


def gf_mul(x: int, y: int, polynomial: int = GF32_POLYNOMIAL) -> int:
    """Multiply in GF(2)[z] modulo ``polynomial``, bit k of an integer being the coefficient of z^k."""
    top, product = 1 << (polynomial.bit_length() - 1), 0
    while y:
        if y & 1:
            product ^= x
        x, y = x << 1, y >> 1
        if x & top:
            x ^= polynomial
    return product


@lru_cache(maxsize=4)
def _cube_form(polynomial: int) -> tuple[list[int], list[list[int]]]:
    """The quadratic map x -> x³ by its values on unit vectors e_k and its polar form e_k² e_l + e_k e_l²."""
    e = [1 << k for k in range(polynomial.bit_length() - 1)]
    square = [gf_mul(x, x, polynomial) for x in e]
    cubes = [gf_mul(s, x, polynomial) for s, x in zip(square, e, strict=True)]
    polar = [
        [gf_mul(square[k], e[j], polynomial) ^ gf_mul(e[k], square[j], polynomial) for j in range(k)]
        for k in range(len(e))
    ]
    return cubes, polar


def _parity(x: int) -> int:
    return x.bit_count() & 1


def bch_bits(n: int, s0: int, s1: int, s2: int, polynomial: int = GF32_POLYNOMIAL) -> Bits:
    """The bits ``s0 ^ <s1, x> ^ <s2, x³>`` of x = 0 .. n-1, by doubling: Q(e_k + y) = Q(e_k) ^ Q(y) ^ polar(e_k, y)."""
    cubes, polar = _cube_form(polynomial)
    q = np.zeros(1, dtype=np.uint8)
    for k in range((n - 1).bit_length()):
        cross = np.zeros(1, dtype=np.uint8)
        for value in polar[k]:
            cross = np.concatenate([cross, cross ^ _parity(s2 & value)])
        q = np.concatenate([q, q ^ cross ^ (_parity(s2 & cubes[k]) ^ (s1 >> k & 1))])
    return q[:n] ^ np.uint8(s0 & 1)


def signs(key: Key, n: int, table: int = 0) -> npt.NDArray[np.int8]:
    """The ±1 of x = 0 .. n-1: -1 where the BCH bit xor bit x of the sign stream is 1."""
    s0, s1, s2 = (int(w) for w in key.words(3, stream=stream(table, SEED)))
    words = key.words(-(-n // 32), stream=stream(table, SIGN)).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8), count=n, bitorder="little") ^ bch_bits(n, s0, s1, s2)
    return (1 - 2 * bits.astype(np.int8)).astype(np.int8)


def linear_hash(n: int, modulus: int, coefficients: list[int]) -> Index:
    """``a_0 + Σ_{bits k of x} a_{k+1} mod modulus`` for x = 0 .. n-1, by doubling."""
    h = np.array([coefficients[0]], dtype=np.int64)
    for k in range((n - 1).bit_length()):
        h = np.concatenate([h, (h + coefficients[k + 1]) % modulus])
    return h[:n]


def buckets(key: Key, n: int, modulus: int, table: int = 0) -> Index:
    """The buckets in [modulus] of x = 0 .. n-1: the 2-wise linear hash plus one scaled word of the bucket stream."""
    words = key.words(68, stream=stream(table, SEED))[4:].astype(np.uint64)
    coefficients = [((int(hi) << 32 | int(lo)) * modulus) >> 64 for lo, hi in words.reshape(32, 2)]
    top = key.words(n, stream=stream(table, BUCKET)).astype(np.uint64) * np.uint64(modulus) >> np.uint64(32)
    return (linear_hash(n, modulus, coefficients) + top.astype(np.int64)) % modulus


def subset(key: Key, n: int, b: int) -> Index:
    """``b`` of n numbers, uniformly without replacement, ascending: the first different values of the sample stream.

    A word w stands for ``w n div 2³²`` unless ``w n mod 2³² < 2³² mod n`` (then it is skipped), which makes the value
    exactly uniform.  More than half of the numbers are drawn as the complement of the others.
    """
    draws = min(b, n - b)
    taken = np.zeros(n, dtype=bool)
    start, missing = 0, draws
    while missing:
        w = key.words(missing, start, stream=stream(0, SAMPLE)).astype(np.uint64) * np.uint64(n)
        value = (w >> np.uint64(32))[(w & np.uint64(0xFFFFFFFF)) >= np.uint64(2**32 % n)]
        taken[value.astype(np.int64)] = True
        start, missing = start + missing, draws - int(np.count_nonzero(taken))
    return np.flatnonzero(taken if draws == b else ~taken)
