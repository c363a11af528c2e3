"""Copies of another client's frame: found where rounding is drawn per client, and given to whoever made them.

int8, int4, sign1 and the trellis codes round by a stream of the sender's own, so two clients do not send equal bytes
unless one copied the other's (or both have nothing to say: a vector of zeros rounds to itself).  Payloads are compared:
the weight and the check around one can be made by whoever copies it.  A frame of rotated numbers also holds its
sender's salt, 12 bits (6 in a trellis code) that tell who made it even if the copy came first; for the others the first
to arrive keeps it.  f32 and f16 do not round at random: clients with equal updates send equal bytes, and copies pass
for them.
"""

from __future__ import annotations

from desketch.errors import WireError
from desketch.fed.channel import SketchChannel
from desketch.wire import CODEC_TABLE

__all__ = ["Payloads", "maker"]


class Payloads:
    """What tells the frames of one round's clients apart: who was the first to send each payload.

    Frames are not opened here: the channel refuses those that are none, when the round is closed.
    """

    def __init__(self, channel: SketchChannel, t: int) -> None:
        self._channel, self._t, self._header = channel, t, channel.header(t, "update")
        self._codec = CODEC_TABLE[channel.wire.codec]
        self._numbers = self._codec.size(channel.b)
        self._size = self._numbers + self._header.beside
        self._makers: dict[bytes, int] = {}

    def robbed_by(self, client: int, frame: bytes) -> int | None:
        """Another client that sent this payload and did not make it; `WireError` if this one did not make it."""
        if not self._codec.stochastic or len(frame) <= self._size:  # equal numbers make equal bytes; or no frame
            return None
        payload = frame[-self._size :]
        other = self._makers.setdefault(payload, client)
        if other == client or self._says_nothing(payload):
            return None
        if maker(self._channel, self._t, payload, other, client) == other:
            raise WireError(f"frame: the bytes of client {other}'s frame in this round; a copy")
        self._makers[payload] = client
        return other

    def _says_nothing(self, payload: bytes) -> bool:
        try:
            return self._codec.silent(memoryview(payload)[: self._numbers], self._header)
        except WireError:
            return False


def maker(channel: SketchChannel, t: int, payload: bytes, first: int, second: int) -> int:
    """Which of two clients with one payload made it: by the salt where there is one, else the first."""
    codec, key = CODEC_TABLE[channel.wire.codec], channel.key
    made, others = (codec.chosen_salt(key.fold_in("rounding", client, t)) for client in (second, first))
    return second if codec.salt(payload) == made != others else first
