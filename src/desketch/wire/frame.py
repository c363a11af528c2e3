"""Frame: the one envelope of every message, about 25 bytes around its payload (``docs/spec.md``, frame spec v2).

::

    magic 1 | version·codec 1 | family·kind·weight size 1 | run 4 | key fingerprint 4 | round, d, b varints
    | weight 1-4 | payload length varint | payload | CRC-32 4

A one-bit message of b = 1700 numbers carries 217 bytes of payload, so the header spends bytes only where two honest
parties could disagree: integers are LEB128 varints, the weight is a float32 without its trailing zero bytes.  Every
frame has exactly one encoding.  Decoding checks structure, then lengths, then the CRC, then what the receiver expects,
and names the first field that is wrong; nothing is allocated before the lengths agree with the bytes at hand.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from desketch.errors import InputError, WireError
from desketch.keys import Key

__all__ = [
    "CODECS",
    "FAMILY_CODES",
    "KINDS",
    "Fields",
    "Header",
    "float32_weight",
    "head",
    "pack",
    "peek",
    "read_varint",
    "read_weight",
    "run_id",
    "seal",
    "split",
    "unpack",
    "varint",
    "weight_bytes",
]

MAGIC, VERSION = 0xDE, 2
CRC_SIZE = 4
MAX_INT = 2**48 - 1
CODECS = {
    "f32": 0,
    "f16": 1,
    "int8": 2,
    "int4": 3,
    "sign1": 4,
    "trellis1": 5,
    "trellis2": 6,
    "trellis3": 7,
    "opaque": 15,
}
FAMILY_CODES = {
    "none": 0,
    "gaussian": 1,
    "srht": 2,
    "ams": 3,
    "countsketch": 4,
    "sparse1": 5,
    "sparse2": 6,
    "uniform": 7,
}
KINDS = {"update": 0, "broadcast": 1, "checkpoint": 2, "peer": 3}
_CODEC_NAMES = {code: name for name, code in CODECS.items()}
_FAMILY_NAMES = {code: name for name, code in FAMILY_CODES.items()}
_KIND_NAMES = {code: name for name, code in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What sender and receiver agree on, and the weight, which is the sender's alone.

    ``run`` is a 32-bit id (`run_id`), ``key`` the public key of the message (only its fingerprint travels), ``family``
    a sketch family or ``"none"``, ``kind`` one of `KINDS`.  ``weight`` is rounded to float32, as it travels.  ``tiny``
    and ``extra`` count the numbers of one byte, and then of two, that follow the codec's payload inside the frame's.
    """

    run: int
    round: int
    family: str
    d: int
    b: int
    key: Key
    codec: str
    kind: str = "update"
    weight: float = 1.0
    tiny: int = 0
    extra: int = 0

    @property
    def beside(self) -> int:
        """Bytes of the numbers beside the codec's."""
        return self.tiny + 2 * self.extra

    def __post_init__(self) -> None:
        for name, table in (("family", FAMILY_CODES), ("codec", CODECS), ("kind", KINDS)):
            if getattr(self, name) not in table:
                raise InputError(f"unknown {name} {getattr(self, name)!r}; choose one of {', '.join(table)}")
        if not 0 <= self.run < 2**32:
            raise InputError(f"run must be a 32-bit id, got {self.run}; make one with run_id(name)")
        if not 0 <= self.round <= MAX_INT:
            raise InputError(f"round must lie in 0..2^48-1, got {self.round}")
        if not 1 <= self.b <= self.d <= MAX_INT:
            raise InputError(f"a frame needs 1 <= b <= d < 2^48, got b={self.b}, d={self.d}")
        object.__setattr__(self, "weight", float32_weight(self.weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a frame as they were read, before anything is expected of them."""

    run: int
    round: int
    family: str
    d: int
    b: int
    fingerprint: int
    codec: str
    kind: str
    weight: float
    start: int
    length: int

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return self.start + self.length + CRC_SIZE


def run_id(name: str | bytes) -> int:
    """Return the 32-bit id of a run: the first four bytes of SHA-256 of its name (or serialised configuration)."""
    data = name.encode() if isinstance(name, str) else name
    return int.from_bytes(hashlib.sha256(b"desketch run v1\0" + data).digest()[:4], "little")


def pack(header: Header, payload: bytes) -> bytes:
    """Put ``payload`` in a frame; ``len(pack(...))`` is what the message costs."""
    return seal(head(header, len(payload)) + payload)


def seal(body: bytes) -> bytes:
    """A frame from all of it but its CRC."""
    return body + zlib.crc32(body).to_bytes(CRC_SIZE, "little")


def head(header: Header, length: int) -> bytes:
    """Everything of a frame before its payload of ``length`` bytes."""
    weight = weight_bytes(header.weight)
    small = FAMILY_CODES[header.family] << 4 | KINDS[header.kind] << 2 | (len(weight) - 1)
    return b"".join(
        (
            bytes((MAGIC, VERSION << 4 | CODECS[header.codec], small)),
            struct.pack("<II", header.run, header.key.fingerprint()),
            varint(header.round) + varint(header.d) + varint(header.b),
            weight,
            varint(length),
        )
    )


def weight_bytes(weight: float) -> bytes:
    """A float32, big-endian, without its trailing zero bytes."""
    return struct.pack(">f", weight).rstrip(b"\0")


def peek(frame: bytes | memoryview) -> Fields:
    """Read a header without expectations; the buffer may hold more than this frame.  The CRC is not checked here."""
    view = memoryview(frame)
    if len(view) < 3:
        raise WireError(f"frame length: truncated, {len(view)} bytes do not hold a header")
    if view[0] != MAGIC:
        raise WireError(f"magic: got 0x{view[0]:02x}, expected 0x{MAGIC:02x}; this is not a desketch frame")
    if view[1] >> 4 != VERSION:
        raise WireError(f"version: got {view[1] >> 4}, this side reads {VERSION}; upgrade the older side")
    codec = _name(_CODEC_NAMES, view[1] & 15, "codec")
    family = _name(_FAMILY_NAMES, view[2] >> 4, "family")
    kind = _KIND_NAMES[view[2] >> 2 & 3]
    if len(view) < 11:
        raise WireError("frame length: truncated inside run and key fingerprint")
    run, fingerprint = struct.unpack_from("<II", view, 3)
    number, at = read_varint(view, 11, "round")
    d, at = read_varint(view, at, "d")
    b, at = read_varint(view, at, "b")
    if not 1 <= b <= d:
        raise WireError(f"b: got b={b}, d={d}, expected 1 <= b <= d")
    weight, at = read_weight(view, at, (view[2] & 3) + 1)
    length, at = read_varint(view, at, "payload length")
    return Fields(
        run=run,
        round=number,
        family=family,
        d=d,
        b=b,
        fingerprint=fingerprint,
        codec=codec,
        kind=kind,
        weight=weight,
        start=at,
        length=length,
    )


def unpack(frame: bytes | memoryview, expect: Header) -> tuple[Header, memoryview]:
    """Check one frame against ``expect`` (all fields but the weight); return the header as sent and a payload view."""
    view = memoryview(frame)
    got = peek(view)
    if got.size != len(view):
        state = "truncated" if got.size > len(view) else "oversized"
        raise WireError(f"payload length: {state}, the header announces {got.size} bytes, the frame has {len(view)}")
    (crc,) = struct.unpack_from("<I", view, len(view) - CRC_SIZE)
    if crc != zlib.crc32(view[:-CRC_SIZE]):
        raise WireError("checksum: the CRC-32 does not match; the frame was damaged on the way")
    for name in ("run", "round", "kind", "codec", "family", "d", "b"):
        if getattr(got, name) != getattr(expect, name):
            raise WireError(f"{name}: got {getattr(got, name)!r}, expected {getattr(expect, name)!r}")
    if got.fingerprint != expect.key.fingerprint():
        raise WireError(
            f"key: got fingerprint {got.fingerprint:08x}, expected {expect.key.fingerprint():08x}; "
            "sender and receiver must start from the same seed"
        )
    header = Header(**{name: getattr(expect, name) for name in _AGREED}, weight=got.weight)
    return header, view[got.start : got.start + got.length]


_AGREED = ("run", "round", "family", "d", "b", "key", "codec", "kind", "tiny", "extra")


def split(buffer: bytes | memoryview) -> Iterator[memoryview]:
    """Cut a concatenation of frames (a catch-up, say) into its frames; each still has to be unpacked."""
    view = memoryview(buffer)
    while view:
        size = peek(view).size
        if size > len(view):
            raise WireError(f"payload length: truncated, the header announces {size} bytes, {len(view)} are left")
        yield view[:size]
        view = view[size:]


def float32_weight(weight: float) -> float:
    """Round a weight to float32; it must stay finite and positive."""
    try:
        rounded: float = struct.unpack(">f", struct.pack(">f", weight))[0]
    except (OverflowError, struct.error):
        raise InputError(f"weight must be a finite float32, got {weight!r}") from None
    if not 0.0 < rounded < float("inf"):
        raise InputError(f"weight must be positive and finite as a float32, got {weight!r}")
    return rounded


def _name(names: dict[int, str], code: int, field: str) -> str:
    if code not in names:
        raise WireError(f"{field}: unknown code {code}, expected one of {sorted(names)}")
    return names[code]


def varint(value: int) -> bytes:
    """LEB128: seven bits a byte, low first, the top bit says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(view: memoryview, at: int, field: str) -> tuple[int, int]:
    """The number from ``at`` on, and where it ends; ``field`` names it where it is wrong."""
    value = 0
    for i, byte in enumerate(view[at : at + 7]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if (byte == 0 and i > 0) or value > MAX_INT:
                raise WireError(f"{field}: the varint is not the shortest one, or exceeds 2^48-1")
            return value, at + i + 1
    raise WireError(f"{field}: truncated or longer than 7 bytes")


def read_weight(view: memoryview, at: int, size: int) -> tuple[float, int]:
    """The weight in ``size`` bytes from ``at`` on, and where it ends."""
    raw = bytes(view[at : at + size])
    if len(raw) < size:
        raise WireError("weight: truncated")
    value: float = struct.unpack(">f", raw.ljust(4, b"\0"))[0]
    if raw[-1] == 0 or not 0.0 < value < float("inf"):
        raise WireError(
            f"weight: got {value!r} in {size} bytes, expected a positive finite float32 in the fewest bytes"
        )
    return value, at + size
