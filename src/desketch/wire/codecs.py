"""Codecs: b numbers to bytes and back, one class each, for n messages at a time.

==========  ===========================================================  =====================
name        what it does                                                 bytes
==========  ===========================================================  =====================
``f32``     little-endian float32                                        4 b
``f16``     half precision times one power of two, rounded to nearest    2 b + 1
``int8``    stochastic rounding to -127..127 times a scale per 256       b + 2 ⌈b/256⌉
``int4``    stochastic rounding to -7..7 times a scale per 256           ⌈b/2⌉ + 2 ⌈b/256⌉
``sign1``   signs of the rotated vector times one scale |s|²/|s|₁        ⌈b/8⌉ + 4
==========  ===========================================================  =====================

Stochastic rounding is unbiased: E[⌊v + U⌋] = v for U uniform on [0, 1).  The one-bit code is unbiased for randomly
rotated vectors (Vargaftik et al., "EDEN: Communication-efficient and robust distributed mean estimation for federated
learning", ICML 2022), so every message is rotated first (``rotation.py``), by the frame's public key and a salt of its
own.  An SRHT sketch too: one Hadamard transform with one diagonal of signs is no random rotation of a vector with few
large coordinates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire.frame import Header
from desketch.wire.rotation import rotate
from desketch.wire.rows import Decoded, OneBit, Rows

__all__ = ["BLOCK", "CODEC_TABLE", "SALTS", "Codec"]

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
BLOCK = 256
SALTS = 4096
"""Rotations of one round and direction that a one-bit message may choose from."""
_HALF_TOP, _HALF_BELOW = 113, 32752.0  # where 2^15 would be 2^128, and the half below it
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Codec(ABC):
    """How the rows of an ``(n, b)`` float32 array become n payloads of equal size."""

    name: str
    stochastic: bool = False

    @abstractmethod
    def size(self, b: int) -> int:
        """Bytes of one payload."""

    @abstractmethod
    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """Encode finite rows; ``rounding`` holds a key per row when the codec is stochastic."""

    @abstractmethod
    def decode(self, payload: Bytes, header: Header) -> Floats:
        """Decode ``(n, size)`` bytes; raise a `WireError` naming ``scale`` or ``payload`` for values never encoded."""

    def rows(self, payload: Bytes, header: Header) -> Rows:
        """The same as `decode`, and as strict, for those who need a few rows at a time, or their lengths."""
        return Decoded(self.decode(payload, header))

    def silent(self, payload: memoryview, header: Header) -> bool:
        """Whether one payload says nothing but zeros."""
        return not self.decode(np.frombuffer(payload, dtype=np.uint8)[None], header).any()


class Single(Codec):
    """Plain little-endian float32: nothing is lost."""

    name = "f32"

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 4 * b

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """The numbers as they are."""
        return values.astype("<f4").view(np.uint8)

    def decode(self, payload: Bytes, header: Header) -> Floats:
        """The numbers as they were."""
        return _finite(payload.view("<f4").astype(np.float32), "payload")


class Half(Codec):
    """Half precision after division by a power of two, so that neither tiny nor huge vectors leave its range.

    The first byte is e + 128 with max|v| in [2^(e+14), 2^(e+15)), as far as a byte and float32 reach.
    """

    name = "f16"

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 1 + 2 * b

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """The exponent, then the numbers rounded to nearest."""
        e = np.clip(np.frexp(np.abs(values).max(axis=1, initial=0.0))[1] - 15, -128, 127)
        most = np.where(e < _HALF_TOP, np.inf, _HALF_BELOW).astype(np.float32)[:, None]
        with np.errstate(under="ignore"):
            halves = np.clip(np.ldexp(values, -e[:, None]), -most, most).astype("<f2")
        return np.concatenate([(e + 128).astype(np.uint8)[:, None], halves.view(np.uint8)], axis=1)

    def decode(self, payload: Bytes, header: Header) -> Floats:
        """Widen to float32, exactly but below 2^-126."""
        halves = _finite(np.ascontiguousarray(payload[:, 1:]).view("<f2").astype(np.float32), "payload")
        with np.errstate(over="ignore", under="ignore"):
            return _finite(np.ldexp(halves, payload[:, :1].astype(np.int32) - 128), "payload")


class Integer(Codec):
    """Unbiased stochastic rounding to ``bits``-bit integers with one bfloat16 scale per block of 256 numbers.

    The scale is max|v| / L over the block, L = 2^{bits-1} - 1, rounded up to bfloat16 so that nothing is clipped.
    (Where that would take L times the scale beyond float32, it is rounded down: receivers refuse such a scale.)
    """

    stochastic = True

    def __init__(self, bits: int) -> None:
        self.name, self._bits, self._levels = f"int{bits}", bits, 2 ** (bits - 1) - 1
        self._largest = np.float32(_FLOAT32_MAX / self._levels).view(np.uint32) >> 16  # the bfloat16 below

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 2 * -(-b // BLOCK) + -(-b * self._bits // 8)

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """Scales first, then the integers."""
        n, b = values.shape
        blocks = -(-b // BLOCK)
        padded = np.zeros((n, blocks * BLOCK), dtype=np.float32)
        padded[:, :b] = values
        tiles = padded.reshape(n, blocks, BLOCK)
        code = _bfloat16_above(np.abs(tiles).max(axis=2).astype(np.float64) / self._levels)
        code = np.minimum(code, self._largest).astype(np.uint16)
        scale = _from_bfloat16(code)
        steps = np.divide(tiles, scale[:, :, None], out=np.zeros_like(tiles), where=scale[:, :, None] > 0)
        lifted = steps.reshape(n, -1)[:, :b] + _uniform(rounding, b)
        q = np.clip(np.floor(lifted), -self._levels, self._levels).astype(np.int8)
        return np.concatenate([code.astype("<u2").view(np.uint8).reshape(n, -1), self._pack(q)], axis=1)

    def decode(self, payload: Bytes, header: Header) -> Floats:
        """Multiply every integer by its block's scale: one float32 product each."""
        n, b = len(payload), header.b
        blocks = -(-b // BLOCK)
        code = np.ascontiguousarray(payload[:, : 2 * blocks]).view("<u2")
        scale = _from_bfloat16(code)
        if not (np.isfinite(scale) & (code < 0x8000)).all() or scale.max(initial=0) > _FLOAT32_MAX / self._levels:
            raise WireError(
                f"scale: a block scale is not a finite non-negative number below {3.4e38 / self._levels:.3g}"
            )
        q = self._unpack(payload[:, 2 * blocks :], b)
        if (np.abs(q.astype(np.int16)) > self._levels).any():
            raise WireError(f"payload: an integer lies outside -{self._levels}..{self._levels}")
        return (q.astype(np.float32) * np.repeat(scale, BLOCK, axis=1)[:, :b]).reshape(n, b)

    def _pack(self, q: npt.NDArray[np.int8]) -> Bytes:
        if self._bits == 8:
            return q.view(np.uint8)
        nibbles = np.zeros((len(q), q.shape[1] + q.shape[1] % 2), dtype=np.uint8)
        nibbles[:, : q.shape[1]] = q.view(np.uint8) & 15
        return nibbles[:, 0::2] | nibbles[:, 1::2] << 4

    def _unpack(self, raw: Bytes, b: int) -> npt.NDArray[np.int8]:
        if self._bits == 8:
            return raw.view(np.int8)
        nibbles = np.stack([raw & 15, raw >> 4], axis=2).reshape(len(raw), 2 * raw.shape[1])
        if nibbles[:, b:].any():
            raise WireError("payload: the padding nibble is not zero")
        return (nibbles[:, :b] ^ 8).astype(np.int8) - np.int8(8)


class Sign(Codec):
    """One bit a number of the rotated vector, and one float32 scale whose 12 lowest bits are the rotation's salt."""

    name = "sign1"
    stochastic = True

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 4 + -(-b // 8)

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """Scale |s|²/|s|₁ of s = Q v, then the bits of s < 0, low bit first."""
        salts = [int.from_bytes(key.bits[:2], "little") % SALTS for key in rounding]
        with np.errstate(over="ignore", invalid="ignore"):
            s = _finite(rotate(values, _rotation_key(header), salts), "values")
        norm1 = np.abs(s).sum(axis=1, dtype=np.float64)
        norm2 = np.square(s, dtype=np.float64).sum(axis=1)
        scale = np.divide(norm2, norm1, out=np.zeros_like(norm1), where=norm1 > 0)
        bits = np.packbits(s < 0, axis=1, bitorder="little")
        return np.concatenate([_salted(scale, salts)[:, None].view(np.uint8), bits], axis=1)

    def decode(self, payload: Bytes, header: Header) -> Floats:
        """Scale times signs, rotated back exactly and multiplied once."""
        return self.rows(payload, header).all()

    def rows(self, payload: Bytes, header: Header) -> OneBit:
        """Strictly checked, and still packed."""
        b, scales = header.b, np.ascontiguousarray(payload[:, :4]).view("<f4").astype(np.float32)[:, 0]
        if not (np.isfinite(scales) & ~np.signbit(scales)).all():
            raise WireError("scale: the scale is not a finite non-negative number")
        if b % 8 and (payload[:, -1] >> b % 8).any():
            raise WireError("payload: the padding bits are not zero")
        salts = scales.view(np.uint32) % SALTS
        rows = OneBit(np.ascontiguousarray(payload), b=b, key=_rotation_key(header), salts=salts, scales=scales)
        large = np.flatnonzero(scales.astype(np.float64) * (b + 1) ** 0.5 >= _FLOAT32_MAX)  # else no number is too long
        if len(large):
            _finite(rows.chosen(large.tolist()).all(), "scale")
        return rows

    def silent(self, payload: memoryview, header: Header) -> bool:
        """Whether the scale is zero."""
        return payload[:4] == bytes(4)


CODEC_TABLE: dict[str, Codec] = {codec.name: codec for codec in (Single(), Half(), Integer(8), Integer(4), Sign())}


def rows(values: Any, b: int) -> Floats:
    """Turn torch or NumPy values of shape ``(n, b)`` into finite contiguous float32 rows."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(values, dtype=np.float32)
    if out.ndim != 2 or out.shape[1] != b:
        raise InputError(f"values must have shape (n, {b}) as the header says, got {out.shape}")
    bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if bad.size:
        raise WireError(f"values: rows {bad[:5].tolist()} hold NaN, infinity or float32 overflow; refuse these clients")
    return out


def _uniform(rounding: Sequence[Key], b: int) -> Floats:
    """A row of b uniforms on the grid of 2^-24 per key, from NumPy's Philox4x64 stream of the key's bits."""
    draws = [np.random.Philox(key=int.from_bytes(key.bits, "little")).random_raw(-(-b // 2)) for key in rounding]
    words = np.stack(draws).astype("<u8", copy=False).view("<u4")[:, :b]
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _rotation_key(header: Header) -> Key:
    """Updates and the broadcast of a round are rotated independently: their errors must not meet."""
    return header.key.fold_in("rotation", header.kind)


def _salted(scale: npt.NDArray[np.float64], salts: Sequence[int]) -> npt.NDArray[np.float32]:
    """The float32 nearest to each scale (by its bits) whose 12 lowest bits are the salt; zero stays zero."""
    with np.errstate(over="ignore", under="ignore"):
        bits = scale.astype(np.float32).view(np.uint32).astype(np.int64)
    salt = np.array(salts, dtype=np.int64)
    nearest = np.maximum((bits - salt + SALTS // 2) // SALTS, 0) * SALTS + salt
    top = 0x7F7FFFFF // SALTS * SALTS - SALTS + salt  # the largest that is surely finite
    return np.where(bits == 0, 0, np.minimum(nearest, top)).astype("<u4").view("<f4")


def _bfloat16_above(x: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
    """The least bfloat16 that is not below x >= 0 (by float32 rounding of x), never zero for x > 0."""
    bits = x.astype(np.float32).view(np.uint32)
    code = ((bits.astype(np.uint64) + 0xFFFF) >> 16).astype(np.uint16)
    return np.where((x > 0) & (code == 0), np.uint16(1), code)


def _from_bfloat16(code: npt.NDArray[np.uint16]) -> Floats:
    return (code.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _finite(values: Floats, field: str) -> Floats:
    if not np.isfinite(values).all():
        raise WireError(f"{field}: a number is not finite in float32")
    return values
