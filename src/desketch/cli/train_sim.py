"""What ``desketch train --engine flower-sim`` does: the same configuration on Flower's Ray simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from desketch.core.files import write_durably
from desketch.errors import ConfigError
from desketch.tasks import RunConfig

__all__ = ["train_simulated"]


def train_simulated(config: RunConfig, *, out: Path, table: bool = False) -> dict[str, Any]:
    """Simulate and leave configuration, rows and summary in ``out``; a folder with state resumes.

    Accuracies are of the replicas' w itself; an average of iterates is not formed here.
    """
    if config.topology or config.dropout or config.straggler:
        raise ConfigError("flower-sim runs a server and real clients: leave out topology, dropout and straggler")
    try:
        from desketch.integrations.flower.simulation import simulate
    except ImportError as error:
        raise ConfigError(f"Flower is not installed ({error}); pip install 'desketch[flower]'") from None
    out.mkdir(parents=True, exist_ok=True)
    config.save(out / "config.yaml")
    simulate(config, out)
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    summary = _summary(config, [json.loads(line) for line in lines])
    write_durably(out / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    if table:
        _print(summary, out)
    return summary


def _summary(config: RunConfig, rows: list[dict[str, Any]]) -> dict[str, Any]:
    last = rows[-1]
    return {
        "engine": "flower-sim",
        "test_accuracy": last.get("accuracy"),
        "test_loss": last.get("loss"),
        "val_accuracy": last.get("val_accuracy"),
        "rounds": last["round"],
        "bytes_up_per_client": sum(row["bytes_up"] for row in rows) / config.clients,
        "bytes_down_per_client": sum(row["bytes_down"] for row in rows) / config.clients,
        "replica_digest": last["digest"],
        "seconds": sum(row["seconds"] for row in rows),
        "stopped_by": "rounds" if last["round"] >= config.rounds else "budget",
        "epsilon": last["epsilon"],
        "delta": config.dp.delta if config.dp else None,
        "refused": sum(len(row["refused"]) for row in rows),
        "clients": config.clients,
    }


def _print(summary: dict[str, Any], out: Path) -> None:
    table = Table(title="desketch train, Flower simulation", show_header=False, title_justify="left")
    for name in ("test_accuracy", "rounds", "bytes_up_per_client", "bytes_down_per_client", "seconds", "epsilon"):
        if summary[name] is not None:
            table.add_row(name.replace("_", " "), f"{summary[name]:,.5g}")
    table.add_row("replica digest", summary["replica_digest"][:16])
    table.add_row("run folder", str(out))
    Console().print(table)
