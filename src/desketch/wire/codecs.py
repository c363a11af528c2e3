"""Codecs: b numbers to bytes and back, one class each, for n messages at a time.

============  =========================================================  =====================
name          what it does                                               bytes
============  =========================================================  =====================
``f32``       little-endian float32                                      4 b
``f16``       half precision times one power of two, rounded to nearest  2 b + 1
``int8``      stochastic rounding to -127..127 times a scale per 256     b + 2 ⌈b/256⌉
``int4``      stochastic rounding to -7..7 times a scale per 256         ⌈b/2⌉ + 2 ⌈b/256⌉
``sign1``     signs of the rotated vector times one scale |s|²/|s|₁      ⌈b/8⌉ + 4
``trellis1``  a vector near the rotated one, one bit a number,           ⌈b/8⌉ + 2
``trellis2``  one bit for two numbers,                                   ⌈⌈b/2⌉/8⌉ + 2
``trellis3``  one bit for three                                          ⌈⌈b/3⌉/8⌉ + 2
============  =========================================================  =====================

Stochastic rounding is unbiased: E[⌊v + U⌋] = v for U uniform on [0, 1).  The one-bit code is unbiased for randomly
rotated vectors (Vargaftik et al., "EDEN: Communication-efficient and robust distributed mean estimation for federated
learning", ICML 2022), and so is the trellis code (``trellis.py``) with the scale |s|²/<s, c> for the code vector c.  So
their messages are rotated first (``rotation.py``), by the frame's public key and a salt of their own.  An SRHT sketch
too: one Hadamard transform with one diagonal of signs is no random rotation of a vector with few large coordinates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire.frame import Header
from desketch.wire.rotation import rotate
from desketch.wire.rows import Decoded, OneBit, Rows, Trellised
from desketch.wire.trellis import RATES, nearest, vectors

__all__ = ["BLOCK", "CODEC_TABLE", "SALTS", "Codec", "payload_size"]

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
R = TypeVar("R", bound=Rows)
BLOCK = 256
SALTS = 4096
"""Rotations of one round and direction that a one-bit message may choose from."""
_HALF_TOP, _HALF_BELOW = 113, 32752.0  # where 2^15 would be 2^128, and the half below it
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Codec(ABC):
    """How the rows of an ``(n, b)`` float32 array become n payloads of equal size."""

    name: str
    bits: float
    """How many a number has, scales aside."""
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

    def salt(self, payload: bytes) -> int | None:
        """Which rotation the sender of a payload chose; None where there is none."""
        return None

    def chosen_salt(self, rounding: Key) -> int | None:
        """Which one the sender with this rounding key chooses."""
        return None

    def silent(self, payload: memoryview, header: Header) -> bool:
        """Whether one payload says nothing but zeros."""
        return not self.decode(np.frombuffer(payload, dtype=np.uint8)[None], header).any()


class Single(Codec):
    """Plain little-endian float32: nothing is lost."""

    name = "f32"
    bits = 32

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
    bits = 16

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
        self.name, self.bits, self._levels = f"int{bits}", bits, 2 ** (bits - 1) - 1
        self._largest = np.float32(_FLOAT32_MAX / self._levels).view(np.uint32) >> 16  # the bfloat16 below

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 2 * -(-b // BLOCK) + -(-b * int(self.bits) // 8)

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
        if self.bits == 8:
            return q.view(np.uint8)
        nibbles = np.zeros((len(q), q.shape[1] + q.shape[1] % 2), dtype=np.uint8)
        nibbles[:, : q.shape[1]] = q.view(np.uint8) & 15
        return nibbles[:, 0::2] | nibbles[:, 1::2] << 4

    def _unpack(self, raw: Bytes, b: int) -> npt.NDArray[np.int8]:
        if self.bits == 8:
            return raw.view(np.int8)
        nibbles = np.stack([raw & 15, raw >> 4], axis=2).reshape(len(raw), 2 * raw.shape[1])
        if nibbles[:, b:].any():
            raise WireError("payload: the padding nibble is not zero")
        return (nibbles[:, :b] ^ 8).astype(np.int8) - np.int8(8)


class Rotated(Codec):
    """What a code of rotated vectors has in common: a salt for every message, drawn from its rounding key."""

    stochastic = True
    salts: int
    """Rotations of one round and direction that a message may choose from."""

    def chosen_salt(self, rounding: Key) -> int:
        """The salt of a sender."""
        return int.from_bytes(rounding.bits[:2], "little") % self.salts

    def turned(self, values: Floats, header: Header, salts: Sequence[int]) -> Floats:
        """Q v of every row, by its own Q."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _finite(rotate(values, _rotation_key(header), salts), "values")

    def decode(self, payload: Bytes, header: Header) -> Floats:
        """Scale times code, rotated back and multiplied once."""
        return self.rows(payload, header).all()


class Sign(Rotated):
    """One bit a number of the rotated vector, and one float32 scale whose 12 lowest bits are the rotation's salt."""

    name = "sign1"
    bits = 1
    salts = SALTS

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 4 + -(-b // 8)

    def salt(self, payload: bytes) -> int:
        """The 12 lowest bits."""
        return int.from_bytes(payload[:4], "little") % SALTS

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """Scale |s|²/|s|₁ of s = Q v, then the bits of s < 0, low bit first."""
        salts = [self.chosen_salt(key) for key in rounding]
        s = self.turned(values, header, salts)
        norm1 = np.abs(s).sum(axis=1, dtype=np.float64)
        norm2 = np.square(s, dtype=np.float64).sum(axis=1)
        scale = np.divide(norm2, norm1, out=np.zeros_like(norm1), where=norm1 > 0)
        bits = np.packbits(s < 0, axis=1, bitorder="little")
        return np.concatenate([_salted(scale, salts)[:, None].view(np.uint8), bits], axis=1)

    def rows(self, payload: Bytes, header: Header) -> OneBit:
        """Strictly checked, and still packed."""
        b, scales = header.b, np.ascontiguousarray(payload[:, :4]).view("<f4").astype(np.float32)[:, 0]
        if not (np.isfinite(scales) & ~np.signbit(scales)).all():
            raise WireError("scale: the scale is not a finite non-negative number")
        _no_padding(payload, b)
        salts = scales.view(np.uint32) % SALTS
        rows = OneBit(np.ascontiguousarray(payload), b=b, key=_rotation_key(header), salts=salts, scales=scales)
        return _in_range(rows, scales.astype(np.float64) * (b + 1) ** 0.5)

    def silent(self, payload: memoryview, header: Header) -> bool:
        """Whether the scale is zero."""
        return payload[:4] == bytes(4)


class Trellis(Rotated):
    """``per`` numbers a bit (``trellis.py``), behind a salt of 6 bits and a scale of 10, in quarters of an octave.

    64 rotations are enough: however many messages share one, what their errors do not average out is below ω/64.
    """

    salts = 64

    def __init__(self, per: int) -> None:
        self.name, self.bits, self._per = f"trellis{per}", 1 / per, per

    def size(self, b: int) -> int:
        """Bytes of one payload."""
        return 2 + -(-self._bits(b) // 8)

    def salt(self, payload: bytes) -> int:
        """The 6 lowest bits."""
        return payload[0] % self.salts

    def encode(self, values: Floats, header: Header, rounding: Sequence[Key]) -> Bytes:
        """Scale |s|²/<s, c> of s = Q v and the code vector c nearest to it, then its bits."""
        salts = [self.chosen_salt(key) for key in rounding]
        s = self.turned(values, header, salts)
        bits = nearest(s, self._per)
        along = (s.astype(np.float64) * vectors(bits, header.b, self._per)).sum(axis=1)
        norm2 = np.square(s, dtype=np.float64).sum(axis=1)
        scale = np.divide(norm2, along, out=np.zeros_like(norm2), where=along > 0)
        code = _octave_quarters(scale, np.array([int.from_bytes(key.bits[2:4], "little") / 65536 for key in rounding]))
        word = np.where(code > 0, code * self.salts + np.array(salts), 0).astype("<u2")
        bits[code == 0] = 0
        return np.concatenate([word[:, None].view(np.uint8), bits], axis=1)

    def rows(self, payload: Bytes, header: Header) -> Trellised:
        """Strictly checked, and still packed."""
        word = np.ascontiguousarray(payload[:, :2]).view("<u2")[:, 0].astype(np.uint32)
        code, salts = word // self.salts, word % self.salts
        if code.max(initial=0) > _TOP_QUARTER:
            raise WireError("scale: the scale is not a finite number")
        _no_padding(payload, self._bits(header.b))
        scales, bits = _QUARTERS[code], np.ascontiguousarray(payload[:, 2:])
        rows = Trellised(bits, b=header.b, per=self._per, key=_rotation_key(header), salts=salts, scales=scales)
        return _in_range(rows, scales.astype(np.float64) * 128 * (header.b + 1) ** 0.5)

    def silent(self, payload: memoryview, header: Header) -> bool:
        """Whether the scale is zero."""
        return payload[0] < self.salts and payload[1] == 0

    def _bits(self, b: int) -> int:
        return -(-b // self._per)


_ALL = (Single(), Half(), Integer(8), Integer(4), Sign(), *(Trellis(per) for per in RATES))
CODEC_TABLE: dict[str, Codec] = {codec.name: codec for codec in _ALL}


def payload_size(header: Header) -> int | None:
    """Bytes of a payload, with the numbers beside the codec's; None for an opaque one."""
    codec = CODEC_TABLE.get(header.codec)
    return None if codec is None else codec.size(header.b) + header.beside


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


_TOP_QUARTER = 4 * (126 + 128) - 1  # the last below 2^128
_ROOTS = np.array([1, 2**0.25, 2**0.5, 2**0.75], dtype=np.float32)
_CODES = np.arange(_TOP_QUARTER + 1)
_QUARTERS = np.ldexp(_ROOTS[_CODES % 4], _CODES // 4 - 126)  # scales by their code: 2^(code/4 - 126), roots in float32
_QUARTERS[0] = 0


def _octave_quarters(scale: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """A code for each scale, the one below or above it, so that the mean over ``uniform`` in [0, 1) is the scale."""
    below = np.clip(np.searchsorted(_QUARTERS, scale, side="right") - 1, 0, _TOP_QUARTER - 1)
    low, high = _QUARTERS[below].astype(np.float64), _QUARTERS[below + 1].astype(np.float64)
    return (below + (uniform < (scale - low) / (high - low))).astype(np.int64)


def _no_padding(payload: Bytes, bits: int) -> None:
    if bits % 8 and (payload[:, -1] >> bits % 8).any():
        raise WireError("payload: the padding bits are not zero")


def _in_range(rows: R, lengths: npt.NDArray[np.float64]) -> R:
    """Check that every number is finite; no number of a row exceeds the length given, so most need no look."""
    large = np.flatnonzero(lengths >= _FLOAT32_MAX)
    if len(large):
        _finite(rows.chosen(large.tolist()).all(), "scale")
    return rows


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
