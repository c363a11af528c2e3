"""What a finished run says of itself, whatever engine moved its bytes: ``summary.json`` and ``model.safetensors``."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

import desketch
from desketch.core.files import sealed_json, write_durably
from desketch.core.strict import strict
from desketch.core.tree import pack_tensors
from desketch.fed.mechanism import Privacy
from desketch.fed.signal import first_rounds
from desketch.tasks.federation import Setup

__all__ = ["Finished", "capture_meta", "summarise", "write_outcome"]


class Finished(Protocol):
    """The party that ends with the model: a federation, a mesh, or the server of a session."""

    @property
    def spent_budget(self) -> bool:
        """Whether the privacy budget ended it."""

    @property
    def t(self) -> int:
        """Rounds done."""

    @property
    def privacy(self) -> Privacy | None:
        """The run's mechanism and ledger."""

    @property
    def model_vector(self) -> Tensor:
        """The w to use."""

    def digest(self) -> str:
        """SHA-256 of the replica's w."""


def summarise(
    setup: Setup, party: Finished, rows: Sequence[Mapping[str, Any]], *, interrupted: bool = False
) -> dict[str, Any]:
    """The numbers of a run: its model's quality, its bytes beside FedAvg's, its privacy, its versions."""
    config, n, d = setup.config, len(setup.clients), setup.model.d
    metric, evaluated = setup.task.goal.metric.name, setup.evaluate(party.model_vector)
    validated = evaluated.pop(f"val_{metric}", None)
    up, down = (sum(row[name] for row in rows) / n for name in ("bytes_up", "bytes_down"))
    secret = any("asked" not in row for row in rows)  # then only what follows from public facts is told
    fedavg = 4 * d * sum(2 * row.get("asked", config.fraction * n) - row.get("dropped", 0) for row in rows) / n
    signal = first_rounds(rows)
    stopped_by = "interrupt" if interrupted else "budget" if party.spent_budget else "rounds"
    return {
        "metric": metric,
        f"test_{metric}": evaluated.pop(metric),
        **{f"test_{name}": value for name, value in evaluated.items()},
        f"val_{metric}": validated,
        "rounds": party.t,
        "bytes_up_per_client": up,
        "bytes_down_per_client": down,
        "fedavg_bytes_per_client": fedavg,
        "times_fewer_bytes": fedavg / (up + down) if up + down else None,
        "signal_share": signal.signal_share if signal else None,
        "step_share": signal.step_share if signal else None,
        "replica_digest": party.digest(),
        "seconds": None if secret else sum(row["seconds"] for row in rows),
        "stopped_by": stopped_by,
        "epsilon": party.privacy.ledger.epsilon() if party.privacy else None,
        "delta": config.dp.delta if config.dp else None,
        "refused": None if secret else sum(len(row["refused"]) for row in rows),
        "skipped_rounds": None if secret else sum(row["participants"] == 0 for row in rows),
        "d": d,
        "b": config.sketch_size(d),
        "clients": n,
        "version": desketch.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def write_outcome(path: Path, setup: Setup, party: Finished, summary: Mapping[str, Any]) -> None:
    """Write the model and the summary into the run folder."""
    write_durably(path / "model.safetensors", pack_tensors(setup.model.unflatten(party.model_vector)))
    write_durably(path / "summary.json", sealed_json(strict(summary), indent=2))


def capture_meta(setup: Setup) -> dict[str, Any]:
    """What `desketch attack` needs beside captured frames: the configuration, and each client's share of the data."""
    config = setup.config
    names = ("task", "model", "clients", "partition", "seed", "local_steps", "eta_local", "batch_size")
    return {
        **{name: getattr(config, name) for name in (*names, "family", "codec")},
        "d": setup.model.d,
        "b": config.sketch_size(setup.model.d),
        "examples": [len(client.y) for client in setup.clients],
        "config": config.model_dump(mode="json"),
    }
