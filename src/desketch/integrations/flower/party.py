"""From the settings of a Flower run to its parties: the session of a client, and the server's strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from desketch.errors import ConfigError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.engine import LoopEngine
from desketch.fed.mechanism import Privacy
from desketch.fed.tensor_client import tensor_clients
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, FolderStore
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup, prepare

__all__ = ["ConfiguredTrainer", "agreement_of", "client_session", "read_settings", "serve", "serve_config"]

# settings of the Flower project itself, which are not part of a run's configuration
EXTRA: dict[str, float] = {"round_timeout": 300.0, "min_nodes": 1}


def read_settings(flat: Mapping[str, Any]) -> tuple[RunConfig, dict[str, float]]:
    """The run's configuration, and the extras, from Flower's flat table of settings."""
    extra = {name: float(flat.get(name, default)) for name, default in EXTRA.items()}
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        if name in EXTRA:
            continue
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return RunConfig.load(**nested), extra


def agreement_of(setup: Setup) -> Agreement:
    """What the parties of a configured run share."""
    c, model = setup.config, setup.model
    if c.average == "local":
        raise ConfigError("average local needs local iterates, which never leave the clients; use all or a number")
    return Agreement(
        name=c.identity(),
        seed=c.seed,
        names=model.names,
        shapes=model.shapes,
        b=c.sketch_size(model.d),
        family=c.family,
        options=c.family_options,
        codec=c.codec,
        codec_down=c.codec_down or c.codec,
        optimizer=c.server,
        eta_global=c.eta_global,
        beta=c.momentum,
    )


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
        """Return w0: the configuration's seed makes it."""
        return self.setup.model.flatten()

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


def serve(grid: Any, flat: Mapping[str, Any], folder: Path) -> None:
    """Run the server of a Flower project over a grid, with its state and metrics in ``folder``."""
    config, extra = read_settings(flat)
    serve_config(grid, config, folder, round_timeout=extra["round_timeout"], min_nodes=extra["min_nodes"])


def serve_config(
    grid: Any,
    config: RunConfig,
    folder: Path,
    *,
    round_timeout: float = EXTRA["round_timeout"],
    min_nodes: float = EXTRA["min_nodes"],
    on_round: Callable[[dict[str, Any]], None] = lambda row: None,
) -> None:
    """Run the server of a configured run over a grid."""
    from flwr.app import ArrayRecord, MetricRecord

    from desketch.integrations.flower.layout import to_arrays, to_vector
    from desketch.integrations.flower.strategy import SketchStrategy

    setup = prepare(config)
    deal = agreement_of(setup)
    strategy = SketchStrategy(
        fraction_train=config.fraction,
        min_available_nodes=int(min_nodes),
        clients=config.clients,
        seed=config.seed,
        privacy=setup.privacy(),
        round_timeout=round_timeout,
        folder=folder,
        agreement=deal,
        on_round=on_round,
    )

    def evaluate(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        if t % config.evaluate_every and t != config.rounds:
            return None
        return MetricRecord(setup.evaluate(to_vector(arrays, deal)))

    folder.mkdir(parents=True, exist_ok=True)
    w0 = to_arrays(setup.model.flatten(), deal)
    strategy.start(grid=grid, initial_arrays=w0, num_rounds=config.rounds, evaluate_fn=evaluate)
