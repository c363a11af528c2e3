"""Short frames: a frame between parties of one session, which know all of its header but the weight.

::

    check 2 or 4 | weight 1-4, unless it is the agreed one | payload

The check is taken over the FULL frame, header and payload, as `desketch.wire.frame` would write it: over the facts that
are not sent too.  So a frame of another run, key, round, family, d, b, codec, kind or weight is noticed like damage,
with probability 1 - 2^-16; a payload of 4096 bytes or more has the CRC-32 of its full frame instead.  Where the
codec says how long a payload is, what a frame has more is the weight; in front of an opaque payload it is the shortest
one with which the check is right.  Where a check fails, `lengthen` on the sender's side says everything in full.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from desketch.core.compiled import crc16
from desketch.errors import WireError
from desketch.wire.codecs import payload_size
from desketch.wire.frame import Header, float32_weight, head, pack, read_weight, weight_bytes

__all__ = ["WIDE_FROM", "Opener", "lengthen", "open_short", "short_size", "shorten"]

WIDE_FROM = 4096


def shorten(header: Header, payload: bytes, *, agreed: float = 1.0) -> bytes:
    """Put ``payload`` in a short frame; the weight is left out if it is the ``agreed`` one."""
    own = b"" if header.weight == float32_weight(agreed) else weight_bytes(header.weight)
    return b"".join((_end(_begin(header, len(payload)), payload), own, payload))


class Opener:
    """Opens the short frames of many senders against one header; what they have in common is worked out once."""

    def __init__(self, expect: Header) -> None:
        self.expect, self.length = expect, payload_size(expect)
        self._begun: dict[tuple[float, int], tuple[float, int]] = {}  # weight, length -> weight as it travels, check
        self._at = _check_size(self.length or 0)

    def open(self, frame: bytes | memoryview, *, agreed: float = 1.0) -> tuple[float, memoryview]:
        """The sender's weight, and a view of the payload."""
        view = memoryview(frame)
        if self.length is None:
            return self._open_opaque(view, agreed)
        at, own = self._at, len(view) - self._at - self.length
        if len(view) < at:
            raise WireError(f"frame length: truncated, {len(view)} bytes do not hold a check of {at}")
        if not 0 <= own <= 4:
            raise WireError(
                f"payload length: got {len(view) - at} bytes, expected {self.length} and a weight of 0 to 4"
            )
        return self._open(view, at, own, agreed)

    def _open_opaque(self, view: memoryview, agreed: float) -> tuple[float, memoryview]:
        """A payload of any length: the agreed weight, else the shortest one with which the check is right."""
        failure = WireError(f"frame length: truncated, {len(view)} bytes do not hold a check")
        for own in range(5):
            for at in (2, 4):
                if len(view) < at + own or _check_size(len(view) - at - own) != at:
                    continue
                try:
                    return self._open(view, at, own, agreed)
                except WireError as error:
                    failure = error if own == 0 else failure
        raise failure

    def _open(self, view: memoryview, at: int, own: int, agreed: float) -> tuple[float, memoryview]:
        """Read a frame with a check of ``at`` bytes and a weight of ``own``."""
        weight = read_weight(view, at, own)[0] if own else agreed
        if own and weight == float32_weight(agreed):
            raise WireError(f"weight: got {weight:g}, which is agreed and need not be sent")
        payload = view[at + own :]
        weight, begun = self._begin(weight, len(payload))
        if view[:at] != _end(begun, payload):
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


def open_short(frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0) -> tuple[Header, memoryview]:
    """Check a short frame against ``expect``; return the header with the sender's weight, and a view of the payload."""
    weight, payload = Opener(expect).open(frame, agreed=agreed)
    return replace(expect, weight=weight), payload


def lengthen(frame: bytes | memoryview, expect: Header, *, agreed: float = 1.0) -> bytes:
    """The full frame that says what a short one does."""
    header, payload = open_short(frame, expect, agreed=agreed)
    return pack(header, bytes(payload))


def short_size(header: Header, length: int, *, agreed: float = 1.0) -> int:
    """Bytes of a short frame with a payload of ``length`` bytes."""
    own = 0 if header.weight == float32_weight(agreed) else len(weight_bytes(header.weight))
    return _check_size(length) + own + length


def _check_size(length: int) -> int:
    return 4 if length >= WIDE_FROM else 2


def _begin(header: Header, length: int) -> int:
    """The check of a full frame's header."""
    facts = head(header, length)
    return zlib.crc32(facts) if length >= WIDE_FROM else crc16(facts, 0xFFFF)


def _end(begun: int, payload: bytes | memoryview) -> bytes:
    """The check of a frame, from that of its header."""
    if len(payload) >= WIDE_FROM:
        return zlib.crc32(payload, begun).to_bytes(4, "little")
    return crc16(payload, begun).to_bytes(2, "little")
