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
from desketch.wire import CODEC_TABLE, decode, open_short
from desketch.wire.codecs import SALTS

__all__ = ["maker", "payload_of"]


def payload_of(channel: SketchChannel, t: int, client: int, frame: bytes) -> bytes | None:
    """What tells a client's frame from anybody else's; None where equal numbers make equal bytes, or for no frame."""
    if not CODEC_TABLE[channel.wire.codec].stochastic:
        return None
    agreed, header = channel.agreed.get(client, 1.0), channel.header(t, "update")
    try:
        if not decode(frame, header, agreed=agreed)[1].any():
            return None
        return bytes(open_short(frame, header, agreed=agreed)[1])
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
