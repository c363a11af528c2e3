"""What ``desketch train --engine flower-sim`` does: the same configuration on Flower's Ray simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from desketch.cli.train_run import judgement
from desketch.core.files import write_durably
from desketch.core.metrics import METRICS, primary
from desketch.errors import ConfigError
from desketch.tasks import RunConfig

__all__ = ["train_simulated"]


def train_simulated(config: RunConfig, *, out: Path, table: bool = False) -> dict[str, Any]:
    """Simulate and leave configuration, rows and summary in ``out``; a folder with state resumes.

    Metrics are of the replicas' w itself; an average of iterates is not formed here.
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
    last, metric = rows[-1], primary(rows[-1])
    name = metric.name if metric else None
    return {
        "engine": "flower-sim",
        "metric": name,
        **{f"test_{name}": last[name] for name in (*METRICS, "loss") if name in last},
        **({f"val_{name}": last.get(f"val_{name}")} if name else {}),
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
    for name, value in judgement(summary).items():
        table.add_row(name, value)
    for name in ("rounds", "bytes_up_per_client", "bytes_down_per_client", "seconds", "epsilon"):
        if summary[name] is not None:
            table.add_row(name.replace("_", " "), f"{summary[name]:,.5g}")
    table.add_row("replica digest", summary["replica_digest"][:16])
    table.add_row("run folder", str(out))
    Console().print(table)
