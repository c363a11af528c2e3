"""What parties say to each other in full: at first contact, to catch up, and where something is wrong.

::

    order (server -> client)    order | agreement? | checkpoint? | broadcasts?
    reply (client -> server)    status | update?

Order, agreement, checkpoint, broadcasts and status are opaque full frames under a protocol key; broadcasts and updates
are the short frames of `desketch.fed`.  An ordinary round has a shorter form (`desketch.session.short`).

An order names the round, the version its broadcasts start from and lead to, and the first half of the
SHA-256 of the server's w there; a status names the client (its own id: a node's may change when it restarts), its
version and the same half digest, so that every pair of replicas is compared in every round.  The status that answers an
agreement also shows the client's token (`desketch.session.identity`).

Whatever cannot be read, or says what no honest party says, is a `WireError` that names the field.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache
from itertools import pairwise

from desketch.errors import WireError
from desketch.keys import Key
from desketch.wire import Header, peek, split, unpack
from desketch.wire.frame import head, read_varint, seal, varint

__all__ = ["DIGEST_SIZE", "REASON_LIMIT", "TOKEN_SIZE", "Flags", "Order", "Reply", "State", "half", "strictly"]

DIGEST_SIZE = 16
TOKEN_SIZE = 16
REASON_LIMIT = 1000  # bytes of a reason: it is for people, and goes into the log of every round
AGREEMENT_LIMIT = 1 << 24  # bytes: names and shapes of many thousand arrays
LONGEST = 1e7  # seconds: nobody waits four months for a client
NEVER = -1  # the version of a client that holds no w at all
_UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,  # torch's, and RecursionError
    TypeError,
    ValueError,
)
_KEY = Key(b"desketch session v2")
_ORDER = struct.Struct(f"<BII{DIGEST_SIZE}s")
_STATUS = struct.Struct(f"<BIi{DIGEST_SIZE}sf")
_WITH_TOKEN = 0x80  # set in the state's byte


class Flags(IntFlag):
    """What an order asks for and carries."""

    TRAIN = 1
    AGREEMENT = 2
    CHECKPOINT = 4
    BROADCASTS = 8


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


@contextmanager
def strictly(what: str) -> Iterator[None]:
    """Whatever goes wrong in making use of a part of a message is the message's fault: a `WireError` that names it."""
    try:
        yield
    except _UNREADABLE as error:
        raise WireError(f"{what}: cannot be used: {type(error).__name__}: {str(error)[:200]}") from error


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
        flags |= Flags.CHECKPOINT * (self.checkpoint is not None) | Flags.BROADCASTS * bool(self.broadcasts)
        facts = _ORDER.pack(flags, self.since, self.upto, self.digest)
        missed = _pack_broadcasts(self.since, self.broadcasts) if self.broadcasts else None
        extras = [part for part in (self.agreement, self.checkpoint, missed) if part is not None]
        frames = [_envelope(self.run, self.d, self.t, "broadcast", facts)]
        frames += [_envelope(self.run, self.d, self.t, "checkpoint", part) for part in extras]
        return b"".join(frames)

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
        if code & ~sum(Flags):
            raise WireError(
                f"order: unknown flags {code:#04x}, expected some of {sum(Flags):#04x}; upgrade the older side"
            )
        if not since <= upto < fields.round:
            raise WireError(f"order: round {fields.round} cannot lead from version {since} to {upto}")
        flags = Flags(code)
        agreement = _open(_next(frames), "checkpoint") if Flags.AGREEMENT in flags else None
        checkpoint = _open(_next(frames), "checkpoint") if Flags.CHECKPOINT in flags else None
        if agreement is not None and len(agreement) > AGREEMENT_LIMIT:
            raise WireError(f"agreement: got {len(agreement)} bytes, expected at most {AGREEMENT_LIMIT}")
        missed = _open(_next(frames), "checkpoint") if Flags.BROADCASTS in flags else b""
        broadcasts = tuple(_unpack_broadcasts(since, missed))
        if broadcasts and broadcasts[-1][0] > upto:
            raise WireError(f"broadcasts: got round {broadcasts[-1][0]}, expected rounds in {since + 1}..{upto}")
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
    token: bytes = b""

    def pack(self) -> bytes:
        """The reply as bytes; a reason that is too long loses its end."""
        return self.status(self.seconds) + (self.frame or b"")

    def status(self, seconds: float) -> bytes:
        """All but the update, with other seconds in it."""
        code = self.state | (_WITH_TOKEN if self.token else 0)
        facts = _STATUS.pack(code, self.client, self.version, self.digest, seconds) + self.token
        facts += self.reason.encode(errors="replace")[:REASON_LIMIT]
        return _envelope(self.run, self.d, self.t, "update", facts)

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """Read a reply: its status strictly, the update frame as it is (the channel judges it)."""
        head = _next(split(data))
        fields, facts = peek(head), _open(head, "update")
        if len(facts) < _STATUS.size:
            raise WireError(f"status: got {len(facts)} bytes of facts, expected at least {_STATUS.size}")
        code, client, version, digest, seconds = _STATUS.unpack_from(facts)
        at = _STATUS.size + (TOKEN_SIZE if code & _WITH_TOKEN else 0)
        token, reason, code = facts[_STATUS.size : at], facts[at:], code & ~_WITH_TOKEN
        if len(facts) < at:
            raise WireError(f"status: got {len(token)} bytes of a token, expected {TOKEN_SIZE}")
        if len(reason) > REASON_LIMIT:
            raise WireError(f"status: got a reason of {len(reason)} bytes, expected at most {REASON_LIMIT}")
        if not (math.isfinite(seconds) and 0 <= seconds <= LONGEST):
            raise WireError(f"status: got {seconds:g} seconds, expected 0 to {LONGEST:g}")
        if version < NEVER:
            raise WireError(f"status: got version {version}, expected {NEVER} or more")
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
            reason=reason.decode(errors="replace"),
            token=token,
        )


def _pack_broadcasts(since: int, broadcasts: tuple[tuple[int, bytes], ...]) -> bytes:
    """Each as the rounds since the one before it, its length, its bytes."""
    rounds = [since, *(t for t, _ in broadcasts)]
    gaps = [later - sooner for sooner, later in pairwise(rounds)]
    return b"".join(varint(gap) + varint(len(frame)) + frame for gap, (_, frame) in zip(gaps, broadcasts, strict=True))


def _unpack_broadcasts(since: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    view, at, t = memoryview(data), 0, since
    while at < len(view):
        gap, at = read_varint(view, at, "broadcasts")
        length, at = read_varint(view, at, "broadcasts")
        if gap == 0 or length > len(view) - at:
            raise WireError(f"broadcasts: one after round {t} has no round of its own, or is cut")
        t, at = t + gap, at + length
        yield t, bytes(view[at - length : at])


def _next(frames: Iterator[memoryview]) -> memoryview:
    frame = next(frames, None)
    if frame is None:
        raise WireError("message: a frame is missing; the message was cut")
    return frame


def _envelope(run: int, d: int, t: int, kind: str, payload: bytes) -> bytes:
    return seal(_start(run, d, t, kind, len(payload)) + payload)


@lru_cache(maxsize=64)  # the statuses of a round begin alike, thousands of them
def _start(run: int, d: int, t: int, kind: str, length: int) -> bytes:
    return head(_header(run, d, t, kind), length)


def _open(frame: memoryview, kind: str) -> bytes:
    fields = peek(frame)
    return bytes(unpack(frame, _header(fields.run, fields.d, fields.round, kind))[1])


def _header(run: int, d: int, t: int, kind: str) -> Header:
    return Header(run=run, round=t, family="none", d=d, b=1, key=_KEY, codec="opaque", kind=kind)
