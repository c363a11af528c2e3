"""Copies of another client's frame: found where rounding is drawn per client, and given to whoever made them.

int8, int4 and sign1 round by a stream of the sender's own, so two clients do not send equal bytes unless one copied the
other's (or both have nothing to say: a vector of zeros rounds to itself).  Payloads are compared: the weight and the
check around one can be made by whoever copies it.  A one-bit frame also holds its sender's
salt, 12 bits that tell who made it even if the copy came first; for the others the first to arrive keeps it.  f32 and
f16 do not round at random: clients with equal updates send equal bytes, and copies pass for them.
"""

from __future__ import annotations

from desketch.errors import WireError
from desketch.fed.channel import SketchChannel
from desketch.wire import CODEC_TABLE
from desketch.wire.codecs import SALTS
from desketch.wire.short import Opener

__all__ = ["Payloads", "maker"]


class Payloads:
    """What tells the frames of one round's clients apart."""

    def __init__(self, channel: SketchChannel, t: int) -> None:
        self._agreed, self._header = channel.agreed, channel.header(t, "update")
        self._codec = CODEC_TABLE[channel.wire.codec]
        self._size = self._codec.size(channel.b)
        self._opener = Opener(self._header, length=self._size + 2 * self._header.extra)

    def of(self, client: int, frame: bytes) -> bytes | None:
        """A client's payload; None where equal numbers make equal bytes, or for no frame."""
        if not self._codec.stochastic:
            return None
        try:
            payload = self._opener.open(frame, agreed=self._agreed.get(client, 1.0))[1]
            return None if self._codec.silent(payload[: self._size], self._header) else bytes(payload)
        except WireError:  # not a frame at all: the channel says so
            return None


def maker(channel: SketchChannel, t: int, payload: bytes, first: int, second: int) -> int:
    """Which of two clients with one payload made it: by the salt where there is one, else the first."""
    if channel.wire.codec != "sign1":
        return first
    salt = int.from_bytes(payload[:4], "little") % SALTS
    return second if salt == _salt(channel, t, second) != _salt(channel, t, first) else first


def _salt(channel: SketchChannel, t: int, client: int) -> int:
    return int.from_bytes(channel.key.fold_in("rounding", client, t).bits[:2], "little") % SALTS
