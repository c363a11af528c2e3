"""The same configuration on Flower's Ray simulation: the same sessions, frames and weights as any other engine."""

from __future__ import annotations

import os
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from desketch.fed.rounds import Observer
from desketch.integrations.flower import record
from desketch.integrations.flower.carrier import GridCarrier
from desketch.integrations.flower.identity import client_id
from desketch.session.client import ClientSession, FolderStore
from desketch.session.server import ServerSession
from desketch.session.store import SimulatedStores
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup
from desketch.tasks.parties import ConfiguredTrainer, configured_rounds

__all__ = ["simulate"]


def simulate(
    setup: Setup, session: ServerSession, stores: SimulatedStores, *, observer: Observer | None = None
) -> None:
    """Rounds of the session's server with one virtual SuperNode a client; the observer sees what it sees in process."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    from flwr.simulation import run_simulation

    failure: list[BaseException] = []
    run_simulation(
        server_app=_server(setup, session, observer, failure),
        client_app=_client(setup.config.model_dump_json(), str(stores.folder)),
        num_supernodes=setup.config.clients,
        backend_config={
            "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"},
            "client_resources": {"num_cpus": 1},
        },
    )
    if failure:
        raise failure[0]


def _server(setup: Setup, session: ServerSession, observer: Observer | None, failure: list[BaseException]) -> ServerApp:
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]  # flwr is not typed here
    def main(grid: Grid, context: Context) -> None:
        try:
            carrier = GridCarrier(grid, session)
            rounds = configured_rounds(setup, session, carrier, nodes=setup.config.clients, observer=observer)
            rounds.run(setup.config.rounds)
        except Exception as error:  # Flower's thread would only log it
            failure.append(error)

    return app


def _client(settings: str, states: str) -> ClientApp:
    """A ClientApp that runs inside Ray's actors: sessions come and go, their stores stay."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]  # flwr is not typed here
    def train(message: Message, context: Context) -> Message:
        client = client_id(context)
        store = FolderStore(Path(states) / str(client))
        session = ClientSession(client, _trainer(settings, client), store)
        return Message(record.content(session.answer(record.read(message))), reply_to=message)

    return app


@cache
def _trainer(settings: str, client: int) -> Any:
    return ConfiguredTrainer(_setup(settings), client)


@lru_cache(maxsize=1)
def _setup(settings: str) -> Any:
    import torch

    from desketch.tasks.federation import prepare

    torch.set_num_threads(1)
    return prepare(RunConfig.model_validate_json(settings))
