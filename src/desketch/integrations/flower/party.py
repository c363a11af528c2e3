"""From the flat settings of a Flower run to its parties: the session of a client, and the server over a grid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desketch.integrations.flower.enrol import read_enrolled
from desketch.integrations.serving import serve_configured
from desketch.session.client import ClientSession
from desketch.tasks import parties
from desketch.tasks.config import RunConfig

__all__ = ["client_session", "read_settings", "serve"]

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


def client_session(flat: Mapping[str, Any], client: int, folder: Path) -> ClientSession:
    """The session of one client of a configured run."""
    return parties.client_session(read_settings(flat)[0], client, folder)


def serve(grid: Any, flat: Mapping[str, Any], folder: Path) -> None:
    """Run the server of a Flower project over a grid; ``folder`` ends as a run folder with model and report."""
    from desketch.integrations.flower.carrier import GridCarrier  # clients need no flwr for their sessions

    config, extra = read_settings(flat)
    serve_configured(
        config,
        folder,
        lambda session: GridCarrier(grid, session),
        enrolled=read_enrolled(Path(str(flat[ENROLLED]))) if ENROLLED in flat else None,
        nodes=int(extra["min_nodes"]),
        seconds=extra["round_timeout"],
    )
