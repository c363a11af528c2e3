"""What a Flower message of desketch holds: a sequence of `desketch.wire` frames, and nothing else.

::

    order (server -> client)    order | agreement? | checkpoint?  or  broadcast*
    reply (client -> server)    status | update?

Order, agreement, checkpoint and status are opaque frames under a protocol key; broadcasts and updates are the frames of
`desketch.fed`.  An order names the round, the version its broadcasts start from and lead to, and the first half of the
SHA-256 of the server's w there; a status names the client (its own id: Flower's node ids change when a node restarts),
its version and the same half digest, so that every pair of replicas is compared in every round.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from desketch.errors import WireError
from desketch.keys import Key
from desketch.wire import Header, pack, peek, split, unpack

__all__ = ["DIGEST_SIZE", "Flags", "Order", "Reply", "State", "half"]

DIGEST_SIZE = 16
NEVER = -1  # the version of a client that holds no w at all
_KEY = Key(b"desketch flower protocol v1")
_ORDER = struct.Struct(f"<BII{DIGEST_SIZE}s")
_STATUS = struct.Struct(f"<BIi{DIGEST_SIZE}sf")


class Flags(IntFlag):
    """What an order asks for and carries."""

    TRAIN = 1
    AGREEMENT = 2
    CHECKPOINT = 4


class State(IntEnum):
    """What a client answers."""

    TRAINED = 0  # an update follows
    SYNCED = 1  # up to date; no update was asked for
    STALE = 2  # cannot reach the order's version from its own: send what it misses
    STRANGER = 3  # does not know this run: send the agreement
    FAILED = 4  # could not train; the reason follows


def half(digest: str) -> bytes:
    """The part of a SHA-256 that travels."""
    return bytes.fromhex(digest)[:DIGEST_SIZE]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Round ``t``: come from version ``since`` to ``upto`` and train, or only come."""

    run: int
    d: int
    t: int
    since: int
    upto: int
    digest: bytes
    train: bool = True
    agreement: bytes | None = None
    checkpoint: bytes | None = None
    broadcasts: tuple[tuple[int, bytes], ...] = ()

    def pack(self) -> bytes:
        """The order as bytes."""
        flags = Flags.TRAIN * self.train | Flags.AGREEMENT * (self.agreement is not None)
        flags |= Flags.CHECKPOINT * (self.checkpoint is not None)
        facts = _ORDER.pack(flags, self.since, self.upto, self.digest)
        extras = [part for part in (self.agreement, self.checkpoint) if part is not None]
        frames = [_envelope(self.run, self.d, self.t, "broadcast", facts)]
        frames += [_envelope(self.run, self.d, self.t, "checkpoint", part) for part in extras]
        return b"".join([*frames, *(frame for _, frame in self.broadcasts)])

    @classmethod
    def unpack(cls, data: bytes) -> Order:
        """Read an order strictly."""
        frames = split(data)
        head = _next(frames)
        fields = peek(head)
        facts = _open(head, "broadcast")
        if len(facts) != _ORDER.size:
            raise WireError(f"order: got {len(facts)} bytes of facts, expected {_ORDER.size}")
        code, since, upto, digest = _ORDER.unpack(facts)
        flags = Flags(code)
        agreement = _open(_next(frames), "checkpoint") if Flags.AGREEMENT in flags else None
        checkpoint = _open(_next(frames), "checkpoint") if Flags.CHECKPOINT in flags else None
        broadcasts = tuple((peek(frame).round, bytes(frame)) for frame in frames)
        order = cls(
            run=fields.run,
            d=fields.d,
            t=fields.round,
            since=since,
            upto=upto,
            digest=digest,
            train=Flags.TRAIN in flags,
            agreement=agreement,
            checkpoint=checkpoint,
            broadcasts=broadcasts,
        )
        if order.pack() != data:
            raise WireError("order: an unknown flag, or frames of another run or round in it; no server sends that")
        return order


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A client's answer to an order; ``seconds`` is what it spent on the local steps."""

    run: int
    d: int
    t: int
    state: State
    client: int
    version: int = NEVER
    digest: bytes = bytes(DIGEST_SIZE)
    seconds: float = 0.0
    frame: bytes | None = None
    reason: str = ""

    def pack(self) -> bytes:
        """The reply as bytes."""
        facts = _STATUS.pack(self.state, self.client, self.version, self.digest, self.seconds) + self.reason.encode()
        return _envelope(self.run, self.d, self.t, "update", facts) + (self.frame or b"")

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """Read a reply: its status strictly, the update frame as it is (the channel judges it)."""
        head = _next(split(data))
        fields, facts = peek(head), _open(head, "update")
        if len(facts) < _STATUS.size:
            raise WireError(f"status: got {len(facts)} bytes of facts, expected at least {_STATUS.size}")
        code, client, version, digest, seconds = _STATUS.unpack_from(facts)
        if code not in State.__members__.values():
            raise WireError(f"status: unknown state {code}, expected one of {[int(state) for state in State]}")
        return cls(
            run=fields.run,
            d=fields.d,
            t=fields.round,
            state=State(code),
            client=client,
            version=version,
            digest=digest,
            seconds=seconds,
            frame=bytes(memoryview(data)[len(head) :]) or None,
            reason=facts[_STATUS.size :].decode(errors="replace"),
        )


def _next(frames: Iterator[memoryview]) -> memoryview:
    frame = next(frames, None)
    if frame is None:
        raise WireError("message: a frame is missing; the message was cut")
    return frame


def _envelope(run: int, d: int, t: int, kind: str, payload: bytes) -> bytes:
    return pack(_header(run, d, t, kind), payload)


def _open(frame: memoryview, kind: str) -> bytes:
    fields = peek(frame)
    return bytes(unpack(frame, _header(fields.run, fields.d, fields.round, kind))[1])


def _header(run: int, d: int, t: int, kind: str) -> Header:
    return Header(run=run, round=t, family="none", d=d, b=1, key=_KEY, codec="opaque", kind=kind)
