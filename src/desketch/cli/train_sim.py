"""``desketch train --engine flower-sim``: the rounds of the same run, over Flower's Ray simulation."""

from __future__ import annotations

from collections.abc import Callable

from desketch.errors import ConfigError
from desketch.fed import Observer
from desketch.session.server import ServerSession
from desketch.tasks import Setup

__all__ = ["simulated"]


def simulated(setup: Setup) -> tuple[ServerSession, Callable[[Observer], None]]:
    """The server of the run, and what simulates its rounds."""
    config = setup.config
    if config.topology or config.dropout or config.straggler:
        raise ConfigError("flower-sim runs a server and real clients: leave out topology, dropout and straggler")
    try:
        from desketch.integrations.flower.party import server_session
        from desketch.integrations.flower.simulation import simulate
    except ImportError as error:
        raise ConfigError(f"Flower is not installed ({error}); pip install 'desketch[flower]'") from None
    session = server_session(setup)
    return session, lambda watch: simulate(setup, session, observer=watch)
