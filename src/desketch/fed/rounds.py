"""Algorithm 1, IterativeSketchingFL: read `run` beside the paper.

One R serves a whole round, as in the paper's `lem:update_rule` (the index of dec_t beside enc_{t-1} in the printed
algorithm is a slip).  Deviations, each for a reason: eta_global and the server optimiser act after decoding, on every
replica alike, so that a quantised broadcast still keeps replicas equal; and clients may be absent, drop out, come late
or send rubbish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from desketch.core.on_demand import looked_at
from desketch.errors import BudgetError, InputError, PrivacyError
from desketch.fed.channel import Channel
from desketch.fed.client import Participant, encode_updates
from desketch.fed.client_momentum import ClientMomentum
from desketch.fed.iterates import Average
from desketch.fed.mechanism import Privacy
from desketch.fed.optimizers import ServerOptimizer
from desketch.fed.secrecy import COHORT_FIELDS, public_facts, signal_facts
from desketch.fed.server import Server

__all__ = ["RESERVED", "Attendance", "Federation", "Observer", "RoundRecord", "run"]


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Who comes: ``fraction`` is asked each round; of these ``dropout`` never answer, ``straggler`` answer too late."""

    fraction: float = 1.0
    dropout: float = 0.0
    straggler: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1 or not 0 <= self.dropout <= 1 or not 0 <= self.straggler <= 1:
            raise InputError(f"attendance needs 0 < fraction <= 1 and rates in [0, 1], got {self}")

    def cohort(self, t: int, clients: int) -> list[int]:
        """The clients asked in round t."""
        if self.fraction == 1:
            return list(range(clients))
        size = max(1, round(self.fraction * clients))
        return sorted(self._rng(t, 0).choice(clients, size, replace=False).tolist())

    def fates(self, t: int, cohort: Sequence[int]) -> dict[int, str]:
        """What happens to each of them: "ok", "dropped" or "late"."""
        u = self._rng(t, 1).random((len(cohort), 2))
        fate = {0: "ok", 1: "late", 2: "dropped", 3: "dropped"}
        code = 2 * (u[:, 0] < self.dropout) + (u[:, 1] < self.straggler)
        return {client: fate[int(c)] for client, c in zip(cohort, code, strict=True)}

    def _rng(self, t: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, t])


@dataclass(frozen=True)
class RoundRecord:
    """One row of ``metrics.jsonl``; bytes are of all clients together."""

    round: int
    metrics: Mapping[str, float]
    bytes_up: int
    bytes_down: int
    asked: int
    participants: int
    refused: Mapping[Any, str]  # client -> why; over a network also a node that is no client yet
    dropped: int
    late: int
    eta_global: float
    digest: str
    seconds: float
    epsilon: float | None = None
    public: Mapping[str, Any] | None = None  # where the cohort is secret: what is published in place of it
    limited: Mapping[Any, str] = field(default_factory=dict)  # client -> how a robust rule held its update back
    void: str | None = None  # why updates came and w did not move
    signal_share: float | None = None  # `desketch.fed.signal`, where there is no privacy
    step_share: float | None = None

    def row(self) -> dict[str, Any]:
        """The record as one flat JSON object, fit to be published: it says nothing of a secret cohort."""
        row = asdict(self)
        public = row.pop("public")
        row = {"round": row.pop("round"), **row.pop("metrics"), **row}
        if public is None:
            return row
        return {name: value for name, value in row.items() if name not in COHORT_FIELDS} | public


RESERVED = frozenset(RoundRecord.__dataclass_fields__) - {"metrics"}
"""What a row calls its own: no metric may have such a name."""


class Observer:
    """What a caller may watch; every method does nothing until overridden.  Set ``stop`` to end after this round."""

    stop: bool = False

    def on_charge(self, t: int) -> None:
        """The ledger was charged for round t, which has released nothing yet."""

    def on_frames(self, t: int, w: Tensor, frames: Mapping[int, bytes]) -> None:
        """Round t's frames, as sent by clients whose replica was at w."""

    def on_round(self, record: RoundRecord) -> None:
        """A finished round."""


class Observers(Observer):
    """Several observers as one; any of them may stop the run."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Whether any observer asks to stop."""
        return any(observer.stop for observer in self.observers)

    def on_charge(self, t: int) -> None:
        """Tell every observer."""
        for observer in self.observers:
            observer.on_charge(t)

    def on_frames(self, t: int, w: Tensor, frames: Mapping[int, bytes]) -> None:
        """Tell every observer."""
        for observer in self.observers:
            observer.on_frames(t, w, frames)

    def on_round(self, record: RoundRecord) -> None:
        """Tell every observer."""
        for observer in self.observers:
            observer.on_round(record)


@dataclass(kw_only=True)
class Federation:
    """The parties of Algorithm 1 and how they work; `run` drives it and leaves it resumable (`state_dict`).

    ``clients`` that are no list are made when they are asked for, by ``clients[c]``, and checked then.
    """

    clients: Sequence[Participant]
    channel: Channel
    optimizer: ServerOptimizer
    w0: Tensor
    attendance: Attendance = field(default_factory=Attendance)
    average: Average = field(default_factory=Average)
    privacy: Privacy | None = None
    memory: ClientMomentum | None = None
    evaluate: Callable[[Tensor], Mapping[str, float]] | None = None
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        check_ids(self.clients)
        _check_privacy(looked_at(self.clients), self.channel, self.privacy)
        self._kept: dict[int, Participant] = {}  # of clients made on demand, those that have something to keep
        self.server = Server(self.w0, optimizer=self.optimizer, channel=self.channel)
        self.spent_budget = False

    @property
    def t(self) -> int:
        """Rounds done."""
        return self.server.replica.version

    @property
    def model_vector(self) -> Tensor:
        """The w to use: the average if one is kept, else the replica's."""
        return self.average.of(self.server.replica.w)

    def digest(self) -> str:
        """SHA-256 of the replica's w, equal on every party."""
        return self.server.replica.digest()

    def state_dict(self) -> dict[str, Any]:
        """Everything `run` needs to go on bit for bit."""
        ledger = self.privacy.ledger.state_dict() if self.privacy else None
        here = self.clients if isinstance(self.clients, list | tuple) else self._kept.values()
        clients = {str(c.client): c.state_dict() for c in here if hasattr(c, "state_dict")}
        kept = {client: state for client, state in clients.items() if state}
        average = self.average.state_dict()
        memory = self.memory.state_dict() if self.memory else {}
        server = self.server.state_dict()
        return {"server": server, "average": average, "ledger": ledger, "clients": kept, "memory": memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.server.load_state_dict(state["server"])
        self.average.load_state_dict(state["average"])
        if self.privacy:
            self.privacy.ledger.load_state_dict(state["ledger"])
        if self.memory:
            self.memory.load_state_dict(state["memory"])
        for client, kept in state["clients"].items():
            (participant,) = self.participants([int(client)])
            participant.load_state_dict(kept)  # type: ignore[attr-defined]
            self._kept[int(client)] = participant

    def participants(self, cohort: Sequence[int]) -> list[Participant]:
        """The clients of these ids; those made on demand are checked as the others were at the beginning."""
        if isinstance(self.clients, list | tuple):
            return [self.clients[client] for client in cohort]
        found = [self._kept.get(client) or self.clients[client] for client in cohort]
        for client, participant in zip(cohort, found, strict=True):
            if participant.client != client:
                raise InputError(f"clients[{client}] must have the id {client}, got {participant.client}")
        _check_privacy(found, self.channel, self.privacy)
        return found

    def keep(self, trained: Sequence[Participant]) -> None:
        """Hold on to clients made on demand that have something for their next round."""
        if not isinstance(self.clients, list | tuple):
            stateful = [p for p in trained if hasattr(p, "state_dict")]
            self._kept |= {p.client: p for p in stateful if p.state_dict()}


def check_ids(clients: Sequence[Participant]) -> None:
    """Client c stands at place c: ids name frames, streams of randomness and ledgers."""
    ids = [participant.client for participant in looked_at(clients)]
    if ids != list(range(len(ids))) or not ids:
        raise InputError(f"clients must have the ids 0..N-1 in order, N >= 1, got {ids[:8]}{' ...' if ids[8:] else ''}")


def _check_privacy(clients: Sequence[Participant], channel: Channel, privacy: Privacy | None) -> None:
    """Refuse a federation in which a privacy mechanism would be named but not applied, or applied but not charged."""
    wanted = (privacy.step or privacy.examples) if privacy else None
    for participant in clients:
        if getattr(participant, "mechanism", None) is not wanted:
            raise PrivacyError(
                f"client {participant.client} does not train with the run's privacy mechanism; make the participants "
                "and the federation with the same `privacy`"
            )
    if getattr(channel, "mechanism", None) is not (privacy.sketch if privacy else None):
        raise PrivacyError(
            f"channel {channel.name} does not carry the run's client-level mechanism; make it with "
            "mechanism=privacy.sketch"
        )


def run(federation: Federation, *, rounds: int, observer: Observer | None = None) -> None:
    """Rounds t+1..T of Algorithm 1; stops before a round whose release would exceed the privacy budget."""
    watch = observer or Observer()
    for t in range(federation.t + 1, rounds + 1):
        started = time.perf_counter()
        if watch.stop or not _affords(federation, t):
            return
        watch.on_charge(t)
        evaluated = t % federation.evaluate_every == 0 or t == rounds
        watch.on_round(_round(federation, t, watch, started, evaluated=evaluated))


def _affords(f: Federation, t: int) -> bool:
    """Charge the ledger for round t before anything is released; False when the budget does not allow it.

    A budget for no round at all is an error: an untrained model must not look like a result.
    """
    try:
        if f.privacy:
            f.privacy.ledger.charge(t)
    except BudgetError:
        if t == 1:
            raise
        f.spent_budget = True
    return not f.spent_budget


def _round(f: Federation, t: int, watch: Observer, started: float, *, evaluated: bool) -> RoundRecord:
    server, w = f.server, f.server.replica.w
    cohort = _cohort(f, t)
    fates = f.attendance.fates(t, cohort)

    # /* Client */ u_c^{t,0} <- w^{t-1} + dec(Δ~^{t-1}): whoever missed broadcasts applies them first
    bytes_down = sum(server.catch_up_size(client) for client in cohort)
    # K local steps, Δ_c(t) <- u_c^{t,K} - w^t, send enc_t(Δ_c(t))
    online = [client for client in cohort if fates[client] != "dropped"]
    clients = f.participants(online)
    sent, refused = encode_updates(
        clients,
        f.channel,
        w,
        t=t,
        memory=f.memory,
        last_step=server.replica.optimizer.last_step if getattr(f.channel, "along", False) else None,
    )
    f.keep(clients)
    watch.on_frames(t, w, sent)

    # /* Server */ Δ~^t <- 1/N Σ_c enc_t(Δ_c(t)), sent to each client and applied by all, server included
    step = server.step({client: frame for client, frame in sent.items() if fates[client] == "ok"})
    bytes_down += sum(server.catch_up_size(client) for client in online)
    f.average.add(w)

    return RoundRecord(
        round=t,
        metrics=dict(f.evaluate(f.model_vector)) if f.evaluate and evaluated else {},
        bytes_up=sum(len(frame) for frame in sent.values()),
        bytes_down=bytes_down,
        asked=len(cohort),
        participants=len(step.participants),
        refused={**refused, **step.refused},
        dropped=len(cohort) - len(online),
        late=sum(fate == "late" for fate in fates.values()),
        eta_global=server.replica.optimizer.eta,
        digest=server.replica.digest(),
        seconds=time.perf_counter() - started,
        epsilon=f.privacy.ledger.epsilon() if f.privacy else None,
        public=public_facts(f.privacy, f.channel, t),
        limited=step.limited,
        void=step.void,
        **signal_facts(step.signal, f.privacy),
    )


def _cohort(f: Federation, t: int) -> list[int]:
    if f.privacy and f.privacy.sketch:
        return f.privacy.sketch.sample(len(f.clients))
    return f.attendance.cohort(t, len(f.clients))
