"""One round between the ranks: say where you stand, leave out who cannot be used, merge.

Every rank first tells its round, the digest of its theta, whether its update can be used, the length of its payload and
the method's notes, in one all-gather of a few bytes.  Everything decided from it is decided alike on every rank.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

import torch
from torch import Tensor

from desketch.errors import RunError
from desketch.integrations.torch.agreement import digest
from desketch.integrations.torch.exchange import Exchange
from desketch.integrations.torch.methods.base import Delta, Heard, Method, Pieces, Said

__all__ = ["HELLO_BYTES", "JOINED", "OuterStats", "Report", "Skipped", "exchange_update", "report"]

_HELLO = struct.Struct("<I8sBI")  # round, digest of theta, fault, length of the payload
HELLO_BYTES = _HELLO.size
_CUT = 1 << 20  # numbers of an update that are looked at together
_LARGEST = 1e15  # of |delta|: beyond, a sketch of it could leave float32
_FAULTS = ("", "its update holds NaN or infinity", f"its update is longer than {_LARGEST:g}", "it has just joined")
JOINED = 3
"""The fault of a rank that took theta from the others in this very round."""


@dataclass(frozen=True)
class Skipped:
    """A rank whose update was left out of a round, on all ranks alike."""

    round: int
    rank: int
    reason: str

    def __str__(self) -> str:
        return f"outer round {self.round}: rank {self.rank} is left out, {self.reason}; it goes on from the mean"


@dataclass(frozen=True)
class OuterStats:
    """What this rank's collectives carried so far, payload bytes, and who was left out."""

    rounds: int
    sent: int
    received: int
    skipped: tuple[Skipped, ...] = field(default=())


@dataclass(frozen=True)
class Report:
    """What a rank brings to round t; ``fault`` is 0 if its update can be used."""

    t: int
    delta: Delta
    said: Said
    fault: int


def report(method: Method, t: int, delta: Delta) -> Report:
    """Look at an update, which must not change from here on; one that cannot be used becomes zeros."""
    fault = _fault(delta, method.d)
    if fault:
        delta = torch.zeros(method.d)
    return Report(t, delta, method.prepare(t, delta), fault)


def exchange_update(
    method: Method, theta: Tensor, mine: Report, exchange: Exchange
) -> tuple[Pieces, tuple[Skipped, ...]]:
    """The mean update of a round, equal in every bit on all ranks, and the ranks that were left out of it."""
    hello = _HELLO.pack(mine.t, digest(theta), mine.fault, len(mine.said.payload))
    heard, skipped = _listen(mine.t, exchange.gather(hello + mine.said.notes))
    u = method.merge(mine.t, mine.delta, mine.said, heard, exchange)
    if not mine.fault:
        method.commit()
    return u, skipped


def _fault(delta: Delta, d: int) -> int:
    length = math.hypot(*(_length(delta[start : start + _CUT]) for start in range(0, d, _CUT)))
    if not math.isfinite(length):
        return 1
    return 2 if length > _LARGEST else 0


def _length(x: Tensor) -> float:
    length = float(torch.linalg.vector_norm(x))
    if length == math.inf:  # its square left float32, which does not mean that it did
        length = float(torch.linalg.vector_norm(x, dtype=torch.float64))
    return length


def _listen(t: int, rows: list[bytes]) -> tuple[Heard, tuple[Skipped, ...]]:
    hellos = [_HELLO.unpack_from(row) for row in rows]
    for what, i in (("round", 0), ("theta", 1)):
        strangers = [rank for rank, hello in enumerate(hellos) if hello[i] != hellos[0][i]]
        if strangers:
            raise RunError(
                f"round {t}: the replicas are no longer equal, rank 0 and ranks {strangers} differ in {what}; somebody "
                "changed outer.theta or resumed another state: resume all ranks from one checkpoint, or call "
                "outer.synchronise()"
            )
    skipped = tuple(Skipped(t, rank, _FAULTS[hello[2]]) for rank, hello in enumerate(hellos) if hello[2])
    ranks = tuple(rank for rank, hello in enumerate(hellos) if not hello[2])
    if not ranks:
        raise RunError(
            f"round {t}: no rank's update can be used ({skipped[0].reason}); theta is as it was: load it "
            "(outer.synchronise()), lower the learning rate or clip gradients, and go on"
        )
    notes = {rank: row[HELLO_BYTES:] for rank, row in enumerate(rows)}
    return Heard(ranks, notes, {rank: hello[3] for rank, hello in enumerate(hellos)}), skipped
