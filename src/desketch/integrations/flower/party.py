"""From the settings of a Flower run to its parties: the session of a client, and the server's strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from desketch.core.locks import sole_writer
from desketch.core.rows import read_rows
from desketch.errors import ConfigError, PrivacyError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.engine import LoopEngine
from desketch.fed.iterates import make_average
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import Observer
from desketch.fed.tensor_client import tensor_clients
from desketch.integrations.flower.enrol import read_enrolled
from desketch.privacy.client_ledger import Terms
from desketch.privacy.events import Event
from desketch.privacy.mechanisms import NoisySteps, SketchClipClients, SketchClipExamples
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, FolderStore
from desketch.session.identity import Identities
from desketch.session.server import ServerSession
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup, prepare
from desketch.tasks.summary import summarise, write_outcome

__all__ = ["ConfiguredTrainer", "client_session", "read_settings", "serve", "serve_session", "server_session"]

# settings of the Flower project itself, which are not part of a run's configuration
EXTRA: dict[str, float] = {"round_timeout": 300.0, "min_nodes": 1}
ENROLLED = "enrolled"  # the file that says which node is which client, in a secure deployment


def read_settings(flat: Mapping[str, Any]) -> tuple[RunConfig, dict[str, float]]:
    """The run's configuration, and the extras, from Flower's flat table of settings."""
    extra = {name: float(flat.get(name, default)) for name, default in EXTRA.items()}
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        if name in EXTRA or name == ENROLLED:
            continue
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return RunConfig.load(**nested), extra


@dataclass
class ConfiguredTrainer:
    """A client whose model, data, local work and privacy mechanism the configuration describes."""

    setup: Setup
    client: int

    @cached_property
    def privacy(self) -> Privacy | None:
        """The client's half of the mechanism; its noise is drawn here, from the operating system."""
        return self.setup.privacy()

    def start(self, agreement: Agreement) -> Tensor | None:
        """Return w0: the configuration's seed makes it; a private client trains under its own configuration only."""
        if self.privacy and agreement.to_json() != self.setup.agreement().to_json():
            raise PrivacyError("the server's agreement is not that of this client's configuration; use one for both")
        return self.setup.model.flatten()

    def terms(self, agreement: Agreement) -> Terms | None:
        """What this client's own configuration agrees to, whatever the server says."""
        if self.privacy is None:
            return None
        mechanism = self.privacy.step or self.privacy.examples or self.privacy.sketch
        cost: Event
        if isinstance(mechanism, SketchClipClients):
            cost = mechanism.event()
        elif isinstance(mechanism, NoisySteps | SketchClipExamples):
            cost = mechanism.event(examples=len(self.setup.clients[self.client].y), steps=self.setup.work.steps)
        else:
            raise PrivacyError(f"nobody knows what a release of {mechanism!r} costs")
        record = self.privacy.ledger.record
        return Terms(
            run=hashlib.sha256(agreement.to_json()).hexdigest(),
            rounds=self.setup.config.rounds,
            unit=record.ledger.unit,
            adjacency=record.ledger.adjacency,
            cost=cost,
            unasked=self.privacy.sketch is not None,
            budget=record.budget,
            not_private=record.ledger.not_private,
        )

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel, which clips and noises sketches under client-level privacy."""
        return agreement.channel(self.privacy.sketch if self.privacy else None)

    @cached_property
    def participant(self) -> Participant:
        """The client of the in-process engine, trained by the loop: its own data are all it has."""
        engine = LoopEngine(self.setup.model, self.privacy.step if self.privacy else None)
        data = self.setup.clients[self.client]
        return tensor_clients([data], engine, self.setup.work, privacy=self.privacy)[0]


def client_session(flat: Mapping[str, Any], client: int, folder: Path) -> ClientSession:
    """The session of one client of a configured run."""
    setup = prepare(read_settings(flat)[0])
    return ClientSession(client, ConfiguredTrainer(setup, client), FolderStore(folder))


def server_session(
    setup: Setup, folder: Path | None = None, enrolled: Mapping[int, int] | None = None
) -> ServerSession:
    """The server of a configured run; with a folder it keeps its state there and resumes from it."""
    average = setup.config.average
    if average == "local":
        raise ConfigError("average local needs local iterates, which never leave the clients; use all or a number")
    return ServerSession(
        setup.agreement(),
        setup.model.flatten(),
        folder=folder,
        privacy=setup.privacy(),
        average=make_average(average),
        identities=Identities(setup.config.clients, enrolled),
        sizes=setup.sizes,
    )


def serve(grid: Any, flat: Mapping[str, Any], folder: Path) -> None:
    """Run the server of a Flower project over a grid; ``folder`` ends as a run folder with model and report."""
    config, extra = read_settings(flat)
    setup = prepare(config)
    enrolled = read_enrolled(Path(str(flat[ENROLLED]))) if ENROLLED in flat else None
    with sole_writer(folder):  # before its state is read
        session = server_session(setup, folder, enrolled)
        serve_session(grid, setup, session, folder=folder, nodes=extra["min_nodes"], seconds=extra["round_timeout"])
        config.save(folder / "config.yaml")
        rows = read_rows(folder / "metrics.jsonl").rows
        write_outcome(folder, setup, session, summarise(setup, session, rows))
        if rows:
            from desketch.report import write_report  # it draws plots: not before they are wanted

            write_report(folder)


def serve_session(
    grid: Any,
    setup: Setup,
    session: ServerSession,
    *,
    folder: Path | None = None,
    nodes: float = EXTRA["min_nodes"],
    seconds: float = EXTRA["round_timeout"],
    observer: Observer | None = None,
) -> None:
    """Rounds of a configured run's server over a grid, once ``nodes`` are there; with a folder, rows go there."""
    from flwr.app import ArrayRecord, MetricRecord

    from desketch.integrations.flower.layout import to_arrays
    from desketch.integrations.flower.strategy import SketchStrategy

    config = setup.config
    strategy = SketchStrategy(
        fraction_train=config.fraction,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=int(nodes),
        clients=config.clients,
        seed=config.seed,
        round_timeout=seconds,
        folder=folder,
        session=session,
        observer=observer,
    )

    def evaluate(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        if t == 0 or (t % config.evaluate_every and t != config.rounds):
            return None
        return MetricRecord(setup.evaluate(session.model_vector))

    w0 = to_arrays(session.w, session.agreement)
    strategy.start(grid=grid, initial_arrays=w0, num_rounds=config.rounds, evaluate_fn=evaluate)
