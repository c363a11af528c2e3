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

import zlib
from dataclasses import replace

from desketch.core.compiled import crc16
from desketch.errors import WireError
from desketch.wire.frame import Header, float32_weight, head, pack, read_weight, weight_bytes

__all__ = ["WIDE_FROM", "Opener", "lengthen", "open_short", "short_size", "shorten"]

FLAG = 0x50
WIDE_FROM = 4096
_WIDE, _WEIGHT = 8, 4


def shorten(header: Header, payload: bytes, *, agreed: float = 1.0) -> bytes:
    """Put ``payload`` in a short frame; the weight is left out if it is the ``agreed`` one."""
    own = b"" if header.weight == float32_weight(agreed) else weight_bytes(header.weight)
    flag = FLAG | (_WIDE if len(payload) >= WIDE_FROM else 0) | (_WEIGHT | len(own) - 1 if own else 0)
    return b"".join((bytes((flag, header.round & 0xFF)), _end(_begin(header, len(payload)), payload), own, payload))


class Opener:
    """Opens the short frames of many senders against one header; what they have in common is worked out once.

    ``length`` is what the payload must have, where that is known.
    """

    def __init__(self, expect: Header, *, length: int | None = None) -> None:
        self.expect, self.length, self._low = expect, length, expect.round & 0xFF
        self._begun: dict[tuple[float, int], tuple[float, int]] = {}  # weight, length -> weight as it travels, check
        wide = length is not None and length >= WIDE_FROM
        self._start, self._at = bytes((FLAG | (_WIDE if wide else 0), self._low)), 6 if wide else 4

    def open(self, frame: bytes | memoryview, *, agreed: float = 1.0) -> tuple[float, memoryview]:
        """The sender's weight, and a view of the payload."""
        view, at = memoryview(frame), self._at
        if len(view) - at == self.length and view[:2] == self._start:  # as nearly all of them are
            payload = view[at:]
            weight, begun = self._begin(agreed, self.length)
            if view[2:at] == _end(begun, payload):
                return weight, payload
        return self._open_any(view, agreed)

    def _open_any(self, view: memoryview, agreed: float) -> tuple[float, memoryview]:
        """Open what may have another length or a weight, or say what is wrong."""
        if len(view) < 2:
            raise WireError(f"frame length: truncated, {len(view)} bytes do not hold a flag and a round")
        flag = view[0]
        if flag & 0xF0 != FLAG or (flag & _WEIGHT == 0 and flag & 3):
            raise WireError(f"flag: got 0x{flag:02x}, expected that of a short frame, 0x50 to 0x5f")
        if view[1] != self._low:
            raise WireError(f"round: got one that ends in {view[1]}, expected {self.expect.round}, {self._low}")
        at = 6 if flag & _WIDE else 4
        weight, start = read_weight(view, at, (flag & 3) + 1) if flag & _WEIGHT else (agreed, at)
        if len(view) < start:
            raise WireError("frame length: truncated inside the check")
        payload = view[start:]
        if self.length is not None and len(payload) != self.length:
            raise WireError(f"payload length: got {len(payload)} bytes, expected {self.length}")
        if (len(payload) >= WIDE_FROM) != bool(flag & _WIDE):
            raise WireError(
                f"flag: a payload of {len(payload)} bytes has the other size of check; 4 bytes from 4096 on"
            )
        if flag & _WEIGHT and weight == float32_weight(agreed):
            raise WireError(f"weight: got {weight:g}, which is agreed and need not be sent")
        weight, begun = self._begin(weight, len(payload))
        if view[2:at] != _end(begun, payload):
            raise WireError(
                "check: it does not match: the frame was damaged on the way, or the two sides do not agree on run, "
                "key, round, family, d, b, codec, kind or weight"
            )
        return weight, payload

    def _begin(self, weight: float, length: int) -> tuple[float, int]:
        begun = self._begun.get((weight, length))
        if begun is None:
            header = replace(self.expect, weight=weight)
            begun = self._begun[weight, length] = header.weight, _begin(header, length)
        return begun


def open_short(
    frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0, length: int | None = None
) -> tuple[Header, memoryview]:
    """Check a short frame against ``expect``; return the header with the sender's weight, and a view of the payload."""
    weight, payload = Opener(expect, length=length).open(frame, agreed=agreed)
    return replace(expect, weight=weight), payload


def lengthen(frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0) -> bytes:
    """The full frame that says what a short one does."""
    header, payload = open_short(frame, expect, agreed=agreed)
    return pack(header, bytes(payload))


def short_size(header: Header, length: int, *, agreed: float = 1.0) -> int:
    """Bytes of a short frame with a payload of ``length`` bytes."""
    own = 0 if header.weight == float32_weight(agreed) else len(weight_bytes(header.weight))
    return 2 + (4 if length >= WIDE_FROM else 2) + own + length


def _begin(header: Header, length: int) -> int:
    """The check of a full frame's header."""
    facts = head(header, length)
    return zlib.crc32(facts) if length >= WIDE_FROM else crc16(facts, 0xFFFF)


def _end(begun: int, payload: bytes | memoryview) -> bytes:
    """The check of a frame, from that of its header."""
    if len(payload) >= WIDE_FROM:
        return zlib.crc32(payload, begun).to_bytes(4, "little")
    return crc16(payload, begun).to_bytes(2, "little")
