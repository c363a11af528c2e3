"""Rounds: the server's rounds over a carrier, the same for every engine.

::

    charge      the privacy ledger is charged before anything of the round is released
    cohort      wait for nodes, choose who is asked: by client id where ids are public, else a sample of who is there
    exchange    orders out, replies in, until all have answered or the deadline (`desketch.session.exchange`)
    close       average, apply, write the state
    beside      what an engine does after a round, e.g. evaluation on clients
    evaluate    the server's own metrics; the row goes to the folder and to the observers

Whoever drives it holds the folder of its session (`desketch.core.locks.sole_writer`) from before the session was made:
a session resumes from its folder, and rounds go on from where it stands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import Logger, getLogger
from pathlib import Path
from typing import Any

from desketch.core.rows import append_row
from desketch.errors import BudgetError, InputError
from desketch.fed.rounds import Attendance, Observer
from desketch.fed.turnout import Turnout
from desketch.session.carrier import Arrival, Carrier
from desketch.session.exchange import LOOK_SECONDS, TICK, Ask, Exchange
from desketch.session.report import RoundReport
from desketch.session.server import ServerSession

__all__ = ["Rounds"]

Beside = Callable[[RoundReport, list[Arrival]], Mapping[str, Any]]


@dataclass(kw_only=True)
class Rounds:
    """The rounds of one session over one carrier.

    Args:
        session: the server of the run.
        carrier: what moves its bytes.
        clients: the public number N of clients with ids 0..N-1; the cohorts are then those of the in-process engine.
        fraction: share of the clients (or, without ``clients``, of the nodes) asked in a round; 0: nobody trains.
        at_least: ask at least so many.
        wait_for: wait for so many nodes before a round; what one round waited for in vain, the next does not.
        seconds: until a round goes on without the silent nodes.
        repeat_after: send an order without an answer again after so many seconds; None: never.
        seed: of the sampling.
        folder: where the rows go, ``metrics.jsonl``.
        evaluate: metrics of the model after round t, on the server; called before the first round too.
        beside: called after a round is closed, with the answers that counted; what it returns goes into the row.
        observer: watches the rounds as it would in process, and may stop them.
        on_row: called with every row.

    """

    session: ServerSession
    carrier: Carrier
    clients: int | None = None
    fraction: float = 1.0
    at_least: int = 1
    wait_for: int = 1
    seconds: float = 300.0
    repeat_after: float | None = None
    seed: int = 0
    folder: Path | None = None
    evaluate: Callable[[int], Mapping[str, Any]] = lambda t: {}
    beside: Beside = lambda report, done: {}
    observer: Observer = field(default_factory=Observer)
    on_row: Callable[[dict[str, Any]], None] = lambda row: None
    logger: Logger = field(default_factory=lambda: getLogger("desketch"))

    def __post_init__(self) -> None:
        if self._by_client and self.clients is None:
            raise InputError("client-level privacy samples from a public number of clients; pass clients=N")
        self._turnout = Turnout()
        self._short = False  # whether the last round began with too few nodes

    def run(self, rounds: int) -> None:
        """Rounds up to ``rounds``, from where the session stands."""
        session = self.session
        self.evaluate(session.t)
        while session.t < rounds and not self.observer.stop:
            try:
                session.charge()
            except BudgetError as error:
                self.logger.warning("the privacy budget ends the run after round %d: %s", session.t, error)
                break
            self.observer.on_charge(session.t + 1)
            self._round(last=session.t + 1 == rounds)
        if session.t < rounds:  # ended early
            self._last_broadcast()
        self._turnout.check()

    def exchange(self, nodes: Iterable[int], ask: Ask) -> list[Arrival]:
        """Ask the nodes; the answers that did what was asked."""
        train = ask is Ask.TRAIN
        return Exchange(
            carrier=self.carrier,
            session=self.session,
            seconds=self.seconds,
            ask=ask,
            private=train and self.session.privacy is not None,
            newcomers=train and self._open_to_all,
            repeat_after=self.repeat_after,
            logger=self.logger,
        ).run(nodes)

    def sample(self, fraction: float, at_least: int, purpose: str) -> list[int]:
        """A sample of the connected nodes, by seed and round, so that a resumed run draws what is left."""
        nodes = self._wait(at_least)
        size = min(len(nodes), max(int(fraction * len(nodes)), at_least))
        return sorted(random.Random(f"{self.seed} {purpose} {self.session.t}").sample(nodes, size))

    def _round(self, *, last: bool) -> None:
        """Clients train, the server steps and evaluates."""
        session, now = self.session, self.carrier.now
        started, t = now(), session.t + 1
        done = self.exchange(self._cohort() if self.fraction else [], Ask.TRAIN)
        answered = now()
        self.observer.on_frames(t, session.w, session.frames)
        report = session.close()
        closed = now()
        seconds = {
            "seconds": closed - started,
            "seconds_client": report.client_seconds,
            "seconds_server": closed - answered,
            "seconds_moving": answered - started - report.client_seconds,
        }
        beside = self.beside(report, done)
        if last:
            self._last_broadcast()
        self._write(report, self.evaluate(t), seconds, beside)

    def _write(
        self, report: RoundReport, metrics: Mapping[str, Any], seconds: dict[str, float], beside: Mapping[str, Any]
    ) -> None:
        up, down = self.session.settle()
        record = report.record(metrics, seconds["seconds"], up=up, down=down)
        row = {**record.row(), "d": self.session.agreement.d}
        row |= {"clients": list(report.participants), **seconds} if record.public is None else {}
        row |= beside
        told = {name: row[name] for name in ("participants", "refused", "bytes_up", "seconds") if name in row}
        self.logger.info("[ROUND %d] %s", row["round"], told)
        if self.folder:
            append_row(self.folder / "metrics.jsonl", row)
        self._turnout.on_round(record)
        self.observer.on_round(record)
        self.on_row(row)

    def _last_broadcast(self) -> None:
        """Bring live replicas to the server's w."""
        behind = self.session.behind(self.session.homes(sorted(self.carrier.nodes())))
        self.exchange(behind, Ask.NOTHING)

    def _cohort(self) -> list[int]:
        """The nodes asked in this round."""
        if self.clients is None:
            return self.sample(self.fraction, self.at_least, "train")
        nodes = self._wait(self.at_least)
        strangers = [node for node in nodes if node not in self.session.clients]
        if strangers and not self._open_to_all:
            self.exchange(strangers, Ask.NOTHING)
            nodes = self.session.homes(nodes)
        chosen, known = set(self._chosen(self.clients)), self.session.clients
        return [node for node in nodes if (known[node] in chosen if node in known else self._open_to_all)]

    def _chosen(self, clients: int) -> list[int]:
        """The round's clients: Poisson sampled under client-level privacy, else those of the in-process engine."""
        if self.session.privacy and self.session.privacy.sketch:
            return self.session.privacy.sketch.sample(clients)
        fraction = min(1.0, max(self.fraction, self.at_least / clients))
        return Attendance(fraction=fraction, seed=self.seed).cohort(self.session.t + 1, clients)

    def _wait(self, at_least: int) -> list[int]:
        """The connected nodes, once there are enough of them."""
        wanted = max(self.wait_for, at_least)
        enough = 1 if self._short else wanted
        deadline = self.carrier.now() + self.seconds
        while len(nodes := sorted(self.carrier.nodes())) < enough and (left := deadline - self.carrier.now()) > 0:
            for late in self.carrier.arrivals(max(TICK, min(left, LOOK_SECONDS))):  # nobody was asked yet
                if late.error is None:
                    self.session.receive(late.node, late.data, beside=late.beside)
        self._short = len(nodes) < wanted
        self.session.identities.connected(nodes)
        return self.session.homes(nodes)

    @property
    def _by_client(self) -> bool:
        return self.session.privacy is not None and self.session.privacy.sketch is not None

    @property
    def _open_to_all(self) -> bool:
        """Whether whoever is there may train, known or not: no sampling, no ledger."""
        return not self.session.privacy and self.fraction == 1
