"""Short orders and replies: what the two ends of a session say to each other in an ordinary round.

::

    order    flag 1 | low byte of the round 1 | check 2 | broadcast?           0x60, +1 train, +2 a broadcast follows
    reply    flag 1 | low byte of the round 1 | check 2 | seconds 1 | update    0x70, trained
             flag 1 | low byte of the round 1 | check 2                         0x71, up to date
             flag 1 | low byte of the round 1                                   0x73, cannot follow: say it in full

An ordinary order leads a client by one broadcast, or by none, to the version before its round; an ordinary reply comes
from a client that is there.  All else they would say follows: run and d from the agreement, the client from its node,
version and digest from having followed.  The check is the CRC-16 of the message in full (`desketch.session.protocol`,
without its frame) and of what follows the check: so two ends whose w differ notice it in every round, and so does
damage, each with probability 1 - 2^-16.  Whoever finds that a check fails asks for the same in full, which names what
differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from desketch.core.compiled import crc16
from desketch.errors import WireError
from desketch.session.protocol import Order, Reply, State

__all__ = ["CANNOT_FOLLOW", "ShortOrder", "ShortReply", "is_short", "is_synced", "nearest", "pack_order", "pack_reply"]

_ORDER, _REPLY = 0x60, 0x70
_TRAIN, _BROADCAST = 1, 2
_SHORTEST = 4
CANNOT_FOLLOW = _REPLY | State.STRANGER
_ORDINARY = (State.TRAINED, State.SYNCED)
_STATES = {_REPLY | state: state for state in (*_ORDINARY, State.STRANGER)}
_TICK, _STEPS = 1e-4, 8  # seconds of code 1, and codes in which they double
_SECONDS = (0.0, *(_TICK * 2.0 ** (code / _STEPS) for code in range(255)))  # by their code


def is_short(data: bytes) -> bool:
    """Whether a message is in the short form; what it says is not judged here."""
    return data[:1] != b"\xde"


def is_synced(data: bytes) -> bool:
    """Whether a reply in either form says that its client is up to date."""
    reply = ShortReply.unpack(data) if is_short(data) else Reply.unpack(data)
    return reply.state is State.SYNCED


def nearest(low: int, t: int) -> int:
    """The round that ends in the byte ``low`` and lies nearest to t."""
    return max(t + (low - t + 128) % 256 - 128, low)


@dataclass(frozen=True)
class ShortOrder:
    """A short order as it was read."""

    low: int
    train: bool
    frame: bytes | None
    check: bytes

    @classmethod
    def unpack(cls, data: bytes) -> ShortOrder:
        """Read a short order; whether it is right shows in `full`."""
        if len(data) < _SHORTEST or data[0] & ~(_TRAIN | _BROADCAST) != _ORDER:
            raise WireError(f"order: got {data[:1].hex() or 'nothing'} and {len(data)} bytes, expected 60 to 63 and 4")
        follows = bool(data[0] & _BROADCAST)
        if follows != (len(data) > _SHORTEST):
            raise WireError(f"order: {len(data) - _SHORTEST} bytes after the check, and its flag says otherwise")
        return cls(data[1], bool(data[0] & _TRAIN), data[4:] if follows else None, data[2:4])

    def full(self, *, run: int, d: int, t: int, digest: bytes) -> Order:
        """The order in full, for a client that knows the rest; `WireError` if the check says that it does not."""
        order = Order(
            run=run,
            d=d,
            t=t,
            since=t - 1 - (self.frame is not None),
            upto=t - 1,
            digest=digest,
            train=self.train,
            broadcasts=() if self.frame is None else ((t - 1, self.frame),),
        )
        if pack_order(order) != self._bytes:
            raise WireError("check: the order was damaged on the way, or its server has another run, round or w")
        return order

    @property
    def _bytes(self) -> bytes:
        flag = _ORDER | _TRAIN * self.train | _BROADCAST * (self.frame is not None)
        return bytes((flag, self.low)) + self.check + (self.frame or b"")


def pack_order(order: Order) -> bytes | None:
    """The order in short, if it is an ordinary one."""
    last = order.broadcasts[0][1] if order.broadcasts else b""
    one = len(order.broadcasts) <= 1 and order.since == order.upto - len(order.broadcasts)
    if not one or order.t != order.upto + 1 or order.agreement is not None or order.checkpoint is not None:
        return None
    flag = _ORDER | _TRAIN * order.train | _BROADCAST * bool(last)
    return _sealed(flag, order.t, replace(order, broadcasts=()).pack(), last)


class ShortReply(NamedTuple):
    """A short reply as it was read."""

    low: int
    state: State
    seconds: float
    frame: bytes | None
    data: bytes

    @classmethod
    def unpack(cls, data: bytes) -> ShortReply:
        """Read a short reply; whether it is right shows in `full`."""
        length, state = len(data), _STATES.get(data[0]) if data else None
        if state is State.TRAINED and length > _SHORTEST + 1:
            return cls(data[1], state, _SECONDS[data[4]], data[5:], data)
        if (state is State.SYNCED and length == _SHORTEST) or (state is State.STRANGER and length == 2):
            return cls(data[1], state, 0.0, None, data)
        if length < _SHORTEST or state is None or state is State.STRANGER:
            raise WireError(f"reply: got {data[:1].hex() or 'nothing'} and {length} bytes, expected 70 or 71 and 4")
        raise WireError(f"reply: {length - _SHORTEST} bytes after the check, and its flag says otherwise")

    def full(self, *, run: int, d: int, t: int, client: int, digest: bytes) -> Reply:
        """The reply in full, for a server that knows the rest; `WireError` if the check says that it does not."""
        reply = Reply(
            run=run,
            d=d,
            t=t,
            state=self.state,
            client=client,
            version=t - 1,
            digest=digest,
            seconds=self.seconds,
            frame=self.frame,
        )
        data = self.data
        if data[1] != t & 0xFF or data[2:4] != _check(reply.status(0.0), data[4:]):
            raise WireError("check: the reply was damaged on the way, or its client has another run, round, id or w")
        return reply


def pack_reply(reply: Reply) -> bytes | None:
    """The reply in short, if it is an ordinary one."""
    if reply.state not in _ORDINARY or reply.version != reply.t - 1 or reply.token or reply.reason:
        return None
    trained = reply.state is State.TRAINED
    if trained != bool(reply.frame):
        return None
    facts = reply.status(0.0)
    rest = bytes((_code(reply.seconds),)) + (reply.frame or b"") if trained else b""
    return _sealed(_REPLY | reply.state, reply.t, facts, rest)


def _sealed(flag: int, t: int, facts: bytes, rest: bytes) -> bytes:
    return bytes((flag, t & 0xFF)) + _check(facts, rest) + rest


def _check(facts: bytes, rest: bytes) -> bytes:
    return crc16(rest, crc16(facts, 0xFFFF)).to_bytes(2, "little")


def _code(seconds: float) -> int:
    """Seconds on a scale of eighths of an octave from 0.1 ms on; 0 is nothing, 255 more than four days."""
    return 0 if seconds < _TICK else min(255, 1 + round(_STEPS * math.log2(seconds / _TICK)))
