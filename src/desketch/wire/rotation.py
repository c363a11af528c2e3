"""A public random rotation Q for the one-bit code, exact in float32 on sign vectors.

Q = B D₂ A D₁: D₁, D₂ are random signs drawn from the key, A and B apply the orthonormal Hadamard matrix of size
h = 4ᵐ = min(256, largest power of four <= b) to groups of h coordinates.  With m = b div h, A groups the first m h
coordinates by stride m, B groups the last m h consecutively; so up to b = 65536 every coordinate reaches every other,
beyond that each group of A is a sample of the whole vector.

Entries of the Hadamard matrices are ±1/√h and √h is a power of two: on a vector of signs every intermediate value is a
multiple of 1/256 and at most 256 in magnitude, hence exact in float32 whatever the order of summation.  That is what
keeps decoded replicas bit-equal on any machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from desketch.keys import Key

__all__ = ["rotate", "rotate_back"]

Floats = npt.NDArray[np.float32]
_LARGEST = 256


def rotate(x: Floats, key: Key) -> Floats:
    """Q x for the rows of ``x``, shape ``(n, b)``."""
    first, last = _signs(key, x.shape[-1])
    return _consecutive(_strided(x * first) * last)


def rotate_back(y: Floats, key: Key) -> Floats:
    """Qᵀ y for the rows of ``y``, shape ``(n, b)``."""
    first, last = _signs(key, y.shape[-1])
    return _strided(_consecutive(y) * last) * first


def _group(b: int) -> int:
    """The largest power of four that is at most min(b, 256)."""
    return 4 ** ((min(b, _LARGEST).bit_length() - 1) // 2)


@lru_cache(maxsize=4)
def _signs(key: Key, b: int) -> tuple[Floats, Floats]:
    """Two vectors of b signs, one bit each from the key's words, low bit of the first word first; 1 means minus."""
    words = key.fold_in("rotation").words(-(-2 * b // 32)).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: 2 * b]
    signs = np.float32(1) - np.float32(2) * bits.astype(np.float32)
    return signs[:b], signs[b:]


@lru_cache(maxsize=8)
def _hadamard(size: int) -> Floats:
    """Sylvester's Hadamard matrix over the square root of its size."""
    H = np.ones((1, 1), dtype=np.float32)
    while len(H) < size:
        H = np.block([[H, H], [H, -H]])
    return H / np.float32(np.sqrt(size))


def _strided(x: Floats) -> Floats:
    n, b = x.shape
    h = _group(b)
    m = b // h
    groups = x[:, : m * h].reshape(n, h, m)
    return np.concatenate([(_hadamard(h) @ groups).reshape(n, m * h), x[:, m * h :]], axis=1)


def _consecutive(x: Floats) -> Floats:
    n, b = x.shape
    h = _group(b)
    m = b // h
    groups = x[:, b - m * h :].reshape(n, m, h)
    return np.concatenate([x[:, : b - m * h], (groups @ _hadamard(h)).reshape(n, m * h)], axis=1)
