"""SketchStrategy: FedAvg's place in a ServerApp, with rounds in which only frames of `desketch.wire` travel.

The names are Flower's; the rounds are those of every engine, `desketch.session.rounds`, over a `GridCarrier`.  Compared
with Flower's own loop they ask stale clients a second time within the round, have a deadline and time-to-live of their
own, checkpoint every round and resume, and charge the privacy ledger before anybody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.supercore import log

from desketch.core.locks import sole_writer
from desketch.errors import InputError, RunError
from desketch.fed.client_momentum import client_beta
from desketch.fed.mechanism import Privacy
from desketch.fed.optimizers import check_momentum
from desketch.fed.robust import Rule, rule_of
from desketch.fed.rounds import Observer
from desketch.integrations.flower.carrier import GridCarrier
from desketch.integrations.flower.layout import describe, to_arrays, to_vector
from desketch.integrations.flower.metrics import Aggregate, aggregate, gather
from desketch.privacy.cautions import warn_of_weak_privacy
from desketch.session.agreement import Agreement, WrappedApp
from desketch.session.carrier import Arrival
from desketch.session.exchange import Ask
from desketch.session.identity import Identities
from desketch.session.report import RoundReport
from desketch.session.rounds import Rounds
from desketch.session.server import ServerSession
from desketch.wire import Wire

__all__ = ["SketchStrategy"]

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class SketchStrategy(FedAvg):  # type: ignore[misc]  # flwr is not typed here
    """Federated averaging of sketches; the ClientApp uses `sketch_mod` (or `desketch.integrations.flower.app`).

    The first ten arguments are FedAvg's, with its defaults; ``min_available_nodes`` and ``min_train_nodes`` are waited
    for once: while nodes stay away, rounds go on.

    Args:
        fraction_train: share of the nodes (or, with ``clients``, of the clients) asked in a round.
        fraction_evaluate: share of the nodes that evaluate after a round; 0: no federated evaluation.
        min_train_nodes: ask at least so many.
        min_evaluate_nodes: let at least so many evaluate.
        min_available_nodes: wait for so many nodes before a round.
        weighted_by_key: the metric of a client's reply that weighs its update and its metrics.
        arrayrecord_key: where the wrapped app finds the model in its message.
        configrecord_key: where it finds the configuration.
        train_metrics_aggr_fn: from the clients' metrics of a training round to one record; default: weighted means.
        evaluate_metrics_aggr_fn: the same for evaluation.
        wire: what every message is made of.
        seed: the public seed of every R_t.
        optimizer: the server optimiser, replayed by every replica.
        eta_global: its step, or "auto".
        beta: its momentum.
        client_momentum: beta of the running means that clients send of their updates, 0 for none.  Here "auto" is none,
            since nobody knows what the apps' own optimisers do; 0.8 pays for clients with plain gradient steps that are
            all asked in every round.
        robust: how updates are averaged, e.g. "krum:num_malicious_nodes=2" (`desketch.fed.robust`); default: the norm
            bound.
        sizes: the weight of each client id that is agreed on; no client counts for more.  Others count for at most 5
            times the median claim.
        clients: the public number N of clients with ids 0..N-1; the cohorts are then those of the in-process engine.
        privacy: mechanism and ledger; client-level sampling needs ``clients``.  Metrics of clients are not covered by
            it, so a private run neither evaluates on clients nor lets their metrics travel.
        round_timeout: seconds until a round goes on without the silent nodes; messages expire then.
        folder: where state and metrics are kept; a run finds its state there and resumes.
        name: tells runs with equal settings apart.
        enrolled: node id -> client, where a deployment settled it (``nodes.json``); no other node is then let in.
        session: the server of a run that is made already; it decides everything the arguments from ``wire`` to
            ``enrolled`` say of the run, ``clients`` and ``round_timeout`` excepted.
        on_round: called with every round's row, as written to ``metrics.jsonl``.
        observer: watches the rounds as it would in process, and may stop them.

    """

    def __init__(
        self,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Aggregate | None = None,
        evaluate_metrics_aggr_fn: Aggregate | None = None,
        *,
        wire: Wire | None = None,
        seed: int = 0,
        optimizer: str = "momentum",
        eta_global: float | Literal["auto"] = "auto",
        beta: float | None = None,
        client_momentum: float | Literal["auto"] = "auto",
        robust: str | Rule | None = None,
        sizes: Mapping[int, float] | None = None,
        clients: int | None = None,
        privacy: Privacy | None = None,
        round_timeout: float = 300.0,
        poll_seconds: float = 0.2,
        folder: Path | str | None = None,
        name: str = "desketch",
        enrolled: Mapping[int, int] | None = None,
        session: ServerSession | None = None,
        on_round: Callable[[dict[str, Any]], None] = lambda row: None,
        observer: Observer | None = None,
    ) -> None:
        check_momentum(optimizer, beta)
        if session is not None and privacy is not None:
            raise InputError("a session has its own privacy; give privacy= to the session, not to the strategy too")
        if privacy is not None:  # a session's was warned of where it was made
            told = privacy.ledger.record
            units = clients if told.ledger.unit == "client" else None
            budget = told.budget.epsilon if told.budget else None
            warn_of_weak_privacy(unit=told.ledger.unit, units=units, delta=told.delta, epsilon=budget)
        if session is not None and (robust is not None or sizes):
            raise InputError("a session has its own rule and sizes; give robust= to its agreement and sizes= to it")
        privacy = session.privacy if session else privacy
        if privacy and privacy.sketch and clients is None:
            raise InputError("client-level privacy samples from a public number of clients; pass clients=N")
        if privacy and fraction_evaluate:
            log(WARNING, "metrics of clients are not private: this run evaluates on the server only")
            fraction_evaluate = 0.0
        super().__init__(
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )
        self.clients, self.privacy, self.seed = clients, privacy, seed
        self.round_timeout, self.poll_seconds = round_timeout, poll_seconds
        self.folder, self.enrolled = Path(folder) if folder else None, enrolled
        self.on_round, self.observer = on_round, observer or Observer()
        self.session, self._given = session, session
        self._facts: dict[str, Any] = {"name": name, "seed": seed, "wire": wire or Wire(), "optimizer": optimizer}
        rule = None if robust is None else rule_of(robust, private_mean=bool(privacy and privacy.sketch)).spec
        self._facts |= {"eta_global": eta_global, "beta": beta, "robust": rule}
        self._facts["client_momentum"] = client_beta(client_momentum, fraction=fraction_train, plain=False)
        self.sizes = dict(sizes or {})

    def summary(self) -> None:
        """Log how nodes are sampled and what the run sends."""
        super().summary()
        deal = self._session.agreement
        wire = deal.wire
        log(INFO, "\t├──> %s, d = %d, b = %d, %s up, %s down", wire.family, deal.d, wire.b, wire.codec, wire.down)
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
        train, evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        with sole_writer(None if self._given else self.folder):  # whoever made the session holds its folder
            self._open(initial_arrays, train, evaluate, num_rounds)
            self.summary()
            return self._rounds(grid, num_rounds, train, evaluate, evaluate_fn)

    def _rounds(
        self, grid: Grid, rounds: int, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: Evaluate | None
    ) -> Result:
        result = Result(arrays=self._arrays())
        carrier = GridCarrier(grid, self._session, poll_seconds=self.poll_seconds)

        def on_server(t: int) -> dict[str, Any]:
            metrics = evaluate_fn(t, result.arrays) if evaluate_fn else None
            self._keep(result.evaluate_metrics_serverapp, t, metrics, "evaluation, on the server")
            return dict(metrics or {})

        def on_clients(report: RoundReport, done: list[Arrival]) -> dict[str, Any]:
            counted = [reply for reply in _messages(done) if self._client(reply) in report.participants]
            result.arrays, metrics = self.aggregate_train(report.round, counted)
            self._keep(result.train_metrics_clientapp, report.round, metrics, "training, on clients")
            row = {} if metrics is None else {"train_metrics": dict(metrics)}
            with carrier.sending(MessageType.EVALUATE):
                replies = _messages(driver.exchange(self._evaluators(driver), Ask.EVALUATE))
            metrics = self.aggregate_evaluate(report.round, replies)
            self._keep(result.evaluate_metrics_clientapp, report.round, metrics, "evaluation, on clients")
            return row if metrics is None else row | {"evaluate_metrics": dict(metrics)}

        driver = Rounds(
            session=self._session,
            carrier=carrier,
            clients=self.clients,
            fraction=self.fraction_train,
            at_least=self.min_train_nodes,
            wait_for=self.min_available_nodes,
            seconds=self.round_timeout,
            seed=self.seed,
            folder=self.folder,
            evaluate=on_server,
            beside=on_clients,
            observer=self.observer,
            on_row=self.on_round,
            logger=getLogger("flwr"),
        )
        driver.run(rounds)
        return result

    def _evaluators(self, driver: Rounds) -> list[int]:
        """The nodes that evaluate: their orders bring replicas up to date by the broadcasts they miss."""
        if not self.fraction_evaluate:
            return []
        return driver.sample(self.fraction_evaluate, self.min_evaluate_nodes, "evaluate")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: what an order carries follows from what its client confirmed, and may differ within a round."""
        raise RunError("SketchStrategy makes the messages of a round itself; call start(grid=..., ...)")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse, like `configure_train`."""
        raise RunError("SketchStrategy makes the messages of a round itself; call start(grid=..., ...)")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after the round, which the session has closed, and the metrics of the clients that counted."""
        return self._arrays(), self._aggregate(list(replies), self.train_metrics_aggr_fn)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The clients' metrics in one record."""
        return self._aggregate(list(replies), self.evaluate_metrics_aggr_fn)

    @property
    def _session(self) -> ServerSession:
        if self.session is None:
            raise RunError("the strategy has not started: call start(grid=..., initial_arrays=..., num_rounds=...)")
        return self.session

    def _open(self, arrays: ArrayRecord, train: ConfigRecord, evaluate: ConfigRecord, rounds: int) -> None:
        if self._given is not None:
            return
        app = WrappedApp(
            arrays=self.arrayrecord_key,
            config=self.configrecord_key,
            weighted_by=self.weighted_by_key,
            train=dict(train),
            evaluate=dict(evaluate),
            metrics=self.privacy is None,
        )
        deal = Agreement(**self._facts, **describe(arrays), app=app, rounds=rounds if self.privacy else None)
        self.session = ServerSession(
            deal,
            to_vector(arrays),
            folder=self.folder,
            privacy=self.privacy,
            identities=Identities(self.clients, self.enrolled),
            sizes=self.sizes,
        )
        if self.session.resumed:
            log(INFO, "resumed after round %d from %s", self.session.t, self.folder)

    def _arrays(self) -> ArrayRecord:
        return to_arrays(self._session.model_vector, self._session.agreement)

    def _client(self, reply: Message) -> int | None:
        return self._session.clients.get(reply.metadata.src_node_id)

    def _aggregate(self, replies: list[Message], function: Aggregate) -> MetricRecord | None:
        if self.privacy:
            return None
        ordered = sorted(replies, key=lambda reply: self._client(reply) or 0)  # sums must not depend on who was faster
        return aggregate(gather(ordered), self.weighted_by_key, function)

    def _keep(self, kept: dict[int, MetricRecord], t: int, metrics: MetricRecord | None, what: str) -> None:
        if metrics is not None:
            kept[t] = metrics
            log(INFO, "[ROUND %d] %s: %s", t, what, dict(metrics))


def _messages(done: list[Arrival]) -> list[Message]:
    return [arrival.carried for arrival in done if isinstance(arrival.carried, Message)]
