"""Public, counter-based randomness that every party derives alike (spec v1, ``docs/spec.md``).

A `Key` is 128 public bits.  `Key.fold_in` walks a path of ints and strings, one SHA-256 per step over an injective
encoding of the step, so two different paths share a key only if SHA-256 truncated to 128 bits collides.  A key's 2^32
streams are Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): half
of the key is Philox's key, the other half the upper half of its counter; counter word 1 names the stream and word 0
counts blocks of four words.  Sixteen blocks make a group of 64 words, laid out output by output, so that a vector
unit writes a group without a transpose: word 64 q + 16 j + l of a stream is output j of block 16 q + l.

Keys are for sketches only.  Privacy noise never comes from here: whoever knows the key could subtract it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError

__all__ = ["STREAM_WORDS", "Key", "philox4x32"]

_DOMAIN = b"desketch key v1\0"
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW32 = np.uint64(0xFFFFFFFF)

STREAM_WORDS = 2**34
"""Words in one stream of a key."""

Words = npt.NDArray[np.uint32]


def philox4x32(counter: npt.ArrayLike, key: tuple[int, int], rounds: int = 10) -> Words:
    """Philox4x32 on an ``(n, 4)`` array of counters; returns the ``(n, 4)`` array of output words."""
    c0, c1, c2, c3 = (np.asarray(counter, dtype=np.uint64).reshape(-1, 4)).T
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & _LOW32,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & _LOW32,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


@dataclass(frozen=True, slots=True)
class Key:
    """A public 128-bit key: ``Key(2023)``, ``Key(b"any bytes")``; children by `fold_in`.

    >>> key = Key(2023)
    >>> key.fold_in("round", 1) == key.fold_in("round").fold_in(1)
    True
    >>> key.fold_in("round", 1) == key.fold_in("round", 2)
    False
    """

    bits: bytes

    def __init__(self, seed: int | bytes) -> None:
        object.__setattr__(self, "bits", _digest(b"", _encode_step(seed)))

    def fold_in(self, *path: int | str) -> Key:
        """Return the key at ``path`` below this one; ``k.fold_in("a", 1) == k.fold_in("a").fold_in(1)``."""
        bits = self.bits
        for step in path:
            if isinstance(step, bytes):
                raise InputError(f"fold_in takes ints and strings, got bytes {step!r}; use a string")
            bits = _digest(bits, _encode_step(step))
        return Key.from_bits(bits)

    @classmethod
    def from_bits(cls, bits: bytes) -> Key:
        """Rebuild a key from its 16 bytes, as stored in a checkpoint or a frame."""
        if not isinstance(bits, bytes) or len(bits) != 16:
            raise InputError(f"a key is 16 bytes, got {bits!r}")
        key = object.__new__(cls)
        object.__setattr__(key, "bits", bits)
        return key

    @property
    def philox_key(self) -> tuple[int, int]:
        """Philox's 64-bit key: the first two little-endian words."""
        return int.from_bytes(self.bits[0:4], "little"), int.from_bytes(self.bits[4:8], "little")

    @property
    def counter_high(self) -> tuple[int, int]:
        """The upper two words of every counter: the last two little-endian words of the key."""
        return int.from_bytes(self.bits[8:12], "little"), int.from_bytes(self.bits[12:16], "little")

    def words(self, n: int, start: int = 0, *, stream: int = 0) -> Words:
        """Words ``start .. start+n-1`` of a stream; word ``64 q + 16 j + l`` is output ``j`` of block ``16 q + l``."""
        if n < 0 or start < 0 or start + n > STREAM_WORDS or not 0 <= stream < 2**32:
            raise InputError(
                f"a key has 2^32 streams of 2^34 words, got words {start} .. {start + n} of stream {stream}; "
                "fold in one more step for more randomness"
            )
        first = start // 64
        out = self._groups(first, -(-(start + n) // 64), np.array([stream]))[0]
        return out[start - 64 * first : start - 64 * first + n]

    def streams(self, n: int, streams: npt.ArrayLike) -> Words:
        """The first n words of several streams at once: row i is ``words(n, stream=streams[i])``."""
        return self._groups(0, -(-n // 64), np.asarray(streams))[:, :n]

    def _groups(self, first: int, last: int, streams: npt.NDArray[np.int64]) -> Words:
        """Groups of 64 words, ``first .. last-1``, of every stream."""
        blocks = 16 * (last - first)
        counter = np.empty((len(streams), blocks, 4), dtype=np.uint64)
        counter[:, :, 0] = np.arange(16 * first, 16 * last, dtype=np.uint64)
        counter[:, :, 1] = streams[:, None]
        counter[:, :, 2], counter[:, :, 3] = self.counter_high
        out = philox4x32(counter, self.philox_key).reshape(len(streams), -1, 16, 4)
        return out.transpose(0, 1, 3, 2).reshape(len(streams), -1)

    def fingerprint(self) -> int:
        """Return 32 bits that identify the key in a frame header without being the key."""
        return _fingerprint(self.bits)

    def __repr__(self) -> str:
        return f"Key({self.bits.hex()})"


def _encode_step(step: int | str | bytes) -> bytes:
    """Encode one path step injectively: a type tag, the length, the bytes."""
    if isinstance(step, bool) or not isinstance(step, int | str | bytes):
        raise InputError(f"a key is made from ints and strings, got {step!r} of type {type(step).__name__}")
    if isinstance(step, int):
        tag, body = b"i", step.to_bytes(step.bit_length() // 8 + 1, "little", signed=True)
    elif isinstance(step, str):
        tag, body = b"s", step.encode("utf-8")
    else:
        tag, body = b"b", step
    return tag + len(body).to_bytes(8, "little") + body


@lru_cache(maxsize=64)  # every frame of a round is compared with the same one
def _fingerprint(bits: bytes) -> int:
    return int.from_bytes(_digest(bits, b"fingerprint")[:4], "little")


def _digest(parent: bytes, step: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + len(parent).to_bytes(1, "little") + parent + step).digest()[:16]
