"""SketchStrategy: Flower's server loop in which only frames of `desketch.wire` travel.

The names are Flower's; the rounds are `desketch.fed`'s.  Compared with Flower's own loop it asks stale clients a second
time within the round, has a deadline and time-to-live of its own, checkpoints every round and resumes, and charges the
privacy ledger before it asks anybody.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from desketch.core.files import sole_writer
from desketch.errors import BudgetError, InputError, RunError
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import Attendance
from desketch.integrations.flower.exchange import Exchange, message, take
from desketch.integrations.flower.layout import describe, to_arrays, to_vector
from desketch.session.agreement import Agreement
from desketch.session.server import RoundReport, ServerSession

__all__ = ["SketchStrategy"]

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class SketchStrategy(Strategy):  # type: ignore[misc]  # flwr is not typed here
    """Federated averaging of sketches; the ClientApp uses `sketch_mod` (or `desketch.integrations.flower.app`).

    Args:
        fraction_train: share of the nodes (or, with ``clients``, of the clients) asked in a round.
        min_train_nodes: ask at least so many.
        min_available_nodes: wait for so many nodes before a round, once: while they stay away, rounds go on.
        weighted_by_key: the metric of a client's reply that weighs its update; read by `sketch_mod`.
        compression: d/b; or give the sketch size ``b`` itself.
        family: the sketch family.
        codec: numbers on the way up.
        codec_down: numbers on the way down.
        seed: the public seed of every R_t.
        optimizer: the server optimiser, replayed by every replica.
        eta_global: its step, or "auto".
        beta: its momentum.
        clients: the public number N of clients with ids 0..N-1; the cohorts are then those of the in-process engine.
        privacy: mechanism and ledger; client-level sampling needs ``clients``.
        round_timeout: seconds until a round goes on without the silent nodes; messages expire then.
        folder: where state and metrics are kept; a run finds its state there and resumes.
        name: tells runs with equal settings apart.
        agreement: use this agreement instead of one built from the arguments above.
        on_round: called with every round's row, as written to ``metrics.jsonl``.

    """

    def __init__(
        self,
        *,
        fraction_train: float = 1.0,
        min_train_nodes: int = 1,
        min_available_nodes: int = 1,
        weighted_by_key: str = "num-examples",
        compression: float = 30.0,
        b: int | None = None,
        family: str = "srht",
        codec: str = "sign1",
        codec_down: str | None = None,
        seed: int = 0,
        optimizer: str = "sgd",
        eta_global: float | Literal["auto"] = "auto",
        beta: float | None = None,
        clients: int | None = None,
        privacy: Privacy | None = None,
        round_timeout: float = 300.0,
        poll_seconds: float = 0.2,
        folder: Path | str | None = None,
        name: str = "desketch",
        agreement: Agreement | None = None,
        on_round: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> None:
        if privacy and privacy.sketch and clients is None:
            raise InputError("client-level privacy samples from a public number of clients; pass clients=N")
        self.fraction_train, self.min_train_nodes = fraction_train, min_train_nodes
        self.min_available_nodes, self.weighted_by_key = min_available_nodes, weighted_by_key
        self.clients, self.privacy = clients, privacy
        self.round_timeout, self.poll_seconds = round_timeout, poll_seconds
        self.folder = Path(folder) if folder else None
        self.on_round = on_round
        self.session: ServerSession | None = None
        self._given = agreement
        self._facts: dict[str, Any] = {
            "name": name,
            "seed": seed,
            "family": family,
            "codec": codec,
            "codec_down": codec_down or codec,
            "optimizer": optimizer,
            "eta_global": eta_global,
            "beta": beta,
            "weighted_by": weighted_by_key,
        }
        self._b, self._compression = b, compression
        self._nodes = random.Random(seed)
        self._attendance = Attendance(fraction=fraction_train, seed=seed)
        self._short = False  # whether the last round began with too few nodes

    def summary(self) -> None:
        """Log what the run sends."""
        deal = self._session.agreement
        log(INFO, "\t├──> %s, d = %d, b = %d, %s up, %s down", deal.family, deal.d, deal.b, deal.codec, deal.codec_down)
        log(INFO, "\t└──> run %08x, state in %s", deal.run, self.folder or "memory only")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Rounds up to ``num_rounds``, from where the folder's checkpoint stands; ``timeout`` is a round's deadline."""
        self.round_timeout = timeout or self.round_timeout
        with sole_writer(self.folder):
            self._open(initial_arrays, dict(train_config or {}))
            self.summary()
            return self._rounds(grid, num_rounds, evaluate_fn)

    def _rounds(self, grid: Grid, num_rounds: int, evaluate_fn: Evaluate | None) -> Result:
        session, result = self._session, Result()
        result.arrays = to_arrays(session.w, session.agreement)
        self._evaluate(result, evaluate_fn)
        while session.t < num_rounds:
            try:
                session.charge()
            except BudgetError as error:
                log(WARNING, "the privacy budget ends the run after round %d: %s", session.t, error)
                break
            self._round(grid, result, evaluate_fn)
        # so that live replicas end with the last broadcast
        self._exchange(grid, session.homes(sorted(grid.get_node_ids())), train=False)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The orders of the round's cohort."""
        return [message(self._session, node, train=True, seconds=self.round_timeout) for node in self._cohort(grid)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies in and close the round."""
        for reply in replies:
            take(self._session, reply.metadata.src_node_id, reply)
        report = self._session.close()
        return to_arrays(self._session.w, self._session.agreement), _metrics(report)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No federated evaluation: the server holds the model and evaluates it with ``evaluate_fn``."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing to aggregate."""
        return None

    @property
    def _session(self) -> ServerSession:
        if self.session is None:
            raise RunError("the strategy has not started: call start(grid=..., initial_arrays=..., num_rounds=...)")
        return self.session

    def _open(self, arrays: ArrayRecord, config: dict[str, Any]) -> None:
        w0 = to_vector(arrays)
        b = self._b or max(1, round(w0.numel() / self._compression))
        deal = self._given or Agreement(**self._facts, **describe(arrays), b=b, config=config)
        self.session = ServerSession(deal, w0, folder=self.folder, privacy=self.privacy)
        if self.session.resumed:
            log(INFO, "resumed after round %d from %s", self.session.t, self.folder)

    def _round(self, grid: Grid, result: Result, evaluate_fn: Evaluate | None) -> None:
        started = time.perf_counter()
        cohort = self._cohort(grid)
        self._exchange(grid, cohort, train=True)
        answered = time.perf_counter()
        report = self._session.close()
        closed = time.perf_counter()
        result.arrays = to_arrays(self._session.w, self._session.agreement)
        result.train_metrics_clientapp[report.round] = _metrics(report)
        metrics = self._evaluate(result, evaluate_fn)
        exchange = answered - started
        seconds = {
            "seconds": closed - started,
            "seconds_client": report.client_seconds,
            "seconds_server": closed - answered,
            "seconds_moving": exchange - report.client_seconds,
        }
        self._write({**asdict(report), "d": self._session.agreement.d, **metrics, **seconds})

    def _evaluate(self, result: Result, evaluate_fn: Evaluate | None) -> dict[str, Any]:
        metrics = evaluate_fn(self._session.t, result.arrays) if evaluate_fn else None
        if metrics is None:
            return {}
        result.evaluate_metrics_serverapp[self._session.t] = metrics
        return dict(metrics)

    def _write(self, row: dict[str, Any]) -> None:
        log(
            INFO, "[ROUND %d] %s", row["round"], {k: row[k] for k in ("participants", "refused", "bytes_up", "seconds")}
        )
        if self.folder:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        self.on_round(row)

    def _cohort(self, grid: Grid) -> list[int]:
        """The nodes asked in this round: by client id where ids are public, else a sample of who is connected."""
        nodes = self._wait(grid)
        if self.clients is None:
            size = max(self.min_train_nodes, round(self.fraction_train * len(nodes)))
            return sorted(self._nodes.sample(nodes, min(size, len(nodes))))
        strangers = [node for node in nodes if node not in self._session.clients]
        if strangers and not self._open_to_all:
            self._exchange(grid, strangers, train=False)
            nodes = self._session.homes(nodes)
        sampled = self.privacy.sketch.sample(self.clients) if self.privacy and self.privacy.sketch else None
        chosen = set(self._attendance.cohort(self._session.t + 1, self.clients) if sampled is None else sampled)
        known = self._session.clients
        return [node for node in nodes if (known[node] in chosen if node in known else self._open_to_all)]

    def _wait(self, grid: Grid) -> list[int]:
        """The connected nodes, once there are enough of them; what one round waited for in vain, the next does not."""
        enough = 1 if self._short else self.min_available_nodes
        deadline = time.monotonic() + self.round_timeout
        while len(nodes := sorted(grid.get_node_ids())) < enough and time.monotonic() < deadline:
            time.sleep(self.poll_seconds)
        self._short = len(nodes) < self.min_available_nodes
        return self._session.homes(nodes)

    def _exchange(self, grid: Grid, nodes: list[int], *, train: bool) -> None:
        Exchange(
            grid,
            self._session,
            seconds=self.round_timeout,
            poll_seconds=self.poll_seconds,
            train=train,
            private=self.privacy is not None,
            newcomers=train and self._open_to_all,
        ).run(nodes)

    @property
    def _open_to_all(self) -> bool:
        """Whether whoever is there may train, known or not: no sampling, no ledger."""
        return not self.privacy and self.fraction_train == 1


def _metrics(report: RoundReport) -> MetricRecord:
    return MetricRecord(
        {
            "participants": len(report.participants),
            "refused": len(report.refused),
            "silent": report.silent,
            "bytes-up": report.bytes_up,
            "bytes-down": report.bytes_down,
        }
    )
