"""The parties of a configured run in processes of their own: a client's session, the server's, and its rounds.

Whatever engine carries their bytes: it hands orders to `client_session(...).answer`, and a `Carrier` to the rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from desketch.errors import ConfigError, PrivacyError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.engine import LoopEngine
from desketch.fed.iterates import make_average
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import Observer
from desketch.fed.tensor_client import tensor_clients
from desketch.privacy.client_ledger import Terms
from desketch.session.agreement import Agreement
from desketch.session.carrier import Carrier
from desketch.session.client import ClientSession, FolderStore
from desketch.session.identity import Identities
from desketch.session.rounds import Rounds
from desketch.session.server import ServerSession
from desketch.session.store import SimulatedStores
from desketch.session.terms import terms_of
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup, prepare

__all__ = ["ConfiguredTrainer", "client_session", "configured_rounds", "server_session"]


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
        return terms_of(
            self.privacy,
            agreement,
            rounds=self.setup.config.rounds,
            examples=len(self.setup.clients[self.client].y),
            steps=self.setup.work.steps,
        )

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel, which clips and noises sketches under client-level privacy."""
        sizes = self.setup.sizes if agreement.known_weights else None
        return agreement.channel(self.privacy.sketch if self.privacy else None, sizes=sizes)

    @cached_property
    def participant(self) -> Participant:
        """The client of the in-process engine, trained by the loop: its own data are all it has."""
        engine = LoopEngine(self.setup.model, self.privacy.step if self.privacy else None)
        data = self.setup.clients[self.client]
        return tensor_clients([data], engine, self.setup.work, privacy=self.privacy)[0]


def client_session(config: RunConfig, client: int, folder: Path) -> ClientSession:
    """The session of one client of a configured run, its state in ``folder``."""
    return ClientSession(client, ConfiguredTrainer(prepare(config), client), FolderStore(folder))


def server_session(
    setup: Setup,
    folder: Path | None = None,
    enrolled: Mapping[int, int] | None = None,
    stores: SimulatedStores | None = None,
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
        average=make_average(average, d=setup.model.d),
        identities=Identities(setup.config.clients, enrolled),
        sizes=setup.sizes,
        stores=stores,
    )


def configured_rounds(
    setup: Setup,
    session: ServerSession,
    carrier: Carrier,
    *,
    folder: Path | None = None,
    nodes: int = 1,
    seconds: float = 300.0,
    repeat_after: float | None = None,
    observer: Observer | None = None,
) -> Rounds:
    """The rounds of a configured run's server, once ``nodes`` are there; with a folder, rows go there."""
    config = setup.config

    def evaluate(t: int) -> Mapping[str, float]:
        if t == 0 or (t % config.evaluate_every and t != config.rounds):
            return {}
        return setup.evaluate(session.model_vector)

    return Rounds(
        session=session,
        carrier=carrier,
        clients=config.clients,
        fraction=config.fraction,
        wait_for=nodes,
        seconds=seconds,
        repeat_after=repeat_after,
        seed=config.seed,
        folder=folder,
        evaluate=evaluate,
        observer=observer or Observer(),
    )
