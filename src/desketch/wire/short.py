"""Short frames: a frame between parties of one session, which know all of its header but the weight.

::

    flag 1 | low byte of the round 1 | check 2 or 4 | weight 1-4, unless it is the agreed one | payload

The flag is 0x50, plus 8 if the check has four bytes, plus 4 and the bytes of the weight less one if a weight follows.
The check is taken over the FULL frame, header and payload, as `desketch.wire.frame` would write it: over the facts that
are not sent too.  So a frame of another run, key, round, family, d, b, codec, kind or weight is noticed like damage,
with probability 1 - 2^-16; a payload of 4096 bytes or more has the CRC-32 of its full frame instead.  Where a check
fails, `lengthen` on the sender's side says everything in full.
"""

from __future__ import annotations

import struct
import zlib
from binascii import crc_hqx
from dataclasses import replace

from desketch.errors import WireError
from desketch.wire.frame import Header, float32_weight, head, pack, read_weight, weight_bytes

__all__ = ["WIDE_FROM", "lengthen", "open_short", "short_size", "shorten"]

FLAG = 0x50
WIDE_FROM = 4096
_WIDE, _WEIGHT = 8, 4


def shorten(header: Header, payload: bytes, *, agreed: float = 1.0) -> bytes:
    """Put ``payload`` in a short frame; the weight is left out if it is the ``agreed`` one."""
    own = b"" if header.weight == float32_weight(agreed) else weight_bytes(header.weight)
    flag = FLAG | (_WIDE if len(payload) >= WIDE_FROM else 0) | (_WEIGHT | len(own) - 1 if own else 0)
    return b"".join((bytes((flag, header.round & 0xFF)), _check(header, payload), own, payload))


def open_short(
    frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0, length: int | None = None
) -> tuple[Header, memoryview]:
    """Check a short frame against ``expect``; return the header with the sender's weight, and a view of the payload.

    ``length`` is what the payload must have, where that is known.
    """
    view = memoryview(frame)
    if len(view) < 2:
        raise WireError(f"frame length: truncated, {len(view)} bytes do not hold a flag and a round")
    if view[0] & 0xF0 != FLAG or (view[0] & _WEIGHT == 0 and view[0] & 3):
        raise WireError(f"flag: got 0x{view[0]:02x}, expected that of a short frame, 0x50 to 0x5f")
    if view[1] != expect.round & 0xFF:
        raise WireError(f"round: got one that ends in {view[1]}, expected {expect.round}, {expect.round & 0xFF}")
    at = 6 if view[0] & _WIDE else 4
    weight, start = read_weight(view, at, (view[0] & 3) + 1) if view[0] & _WEIGHT else (agreed, at)
    if len(view) < start:
        raise WireError("frame length: truncated inside the check")
    payload = view[start:]
    if length is not None and len(payload) != length:
        raise WireError(f"payload length: got {len(payload)} bytes, expected {length}")
    if (len(payload) >= WIDE_FROM) != bool(view[0] & _WIDE):
        raise WireError(f"flag: a payload of {len(payload)} bytes has the other size of check; 4 bytes from 4096 on")
    header = replace(expect, weight=weight)
    if view[0] & _WEIGHT and header.weight == float32_weight(agreed):
        raise WireError(f"weight: got {weight:g}, which is agreed and need not be sent")
    if bytes(view[2:at]) != _check(header, payload):
        raise WireError(
            "check: it does not match: the frame was damaged on the way, or the two sides do not agree on run, key, "
            "round, family, d, b, codec, kind or weight"
        )
    return header, payload


def lengthen(frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0) -> bytes:
    """The full frame that says what a short one does."""
    header, payload = open_short(frame, expect, agreed=agreed)
    return pack(header, bytes(payload))


def short_size(header: Header, length: int, *, agreed: float = 1.0) -> int:
    """Bytes of a short frame with a payload of ``length`` bytes."""
    own = 0 if header.weight == float32_weight(agreed) else len(weight_bytes(header.weight))
    return 2 + (4 if length >= WIDE_FROM else 2) + own + length


def _check(header: Header, payload: bytes | memoryview) -> bytes:
    facts = head(header, len(payload))
    if len(payload) >= WIDE_FROM:
        return struct.pack("<I", zlib.crc32(payload, zlib.crc32(facts)))
    return struct.pack("<H", crc_hqx(payload, crc_hqx(facts, 0xFFFF)))
