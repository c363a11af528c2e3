"""What ``desketch train`` does once its settings are known: parties, folder, progress, summary."""

from __future__ import annotations

import json
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from safetensors.torch import save

import desketch
from desketch.cli.mesh_summary import print_costs, topology_summary
from desketch.core.files import write_durably
from desketch.errors import ConfigError
from desketch.fed import Federation, Observer, Observers, RoundRecord, run
from desketch.mesh.rounds import Mesh, run_mesh
from desketch.report import write_report
from desketch.report.sections import human_bytes
from desketch.run.folder import RunFolder
from desketch.tasks import RunConfig, Setup, prepare

__all__ = ["train_run"]


def train_run(
    config: RunConfig, *, out: Path | None = None, resume: bool = False, quiet: bool = True, table: bool = False
) -> dict[str, Any]:
    """Run, write the run folder, and return the summary."""
    if config.engine == "flower-sim":
        from desketch.cli.train_sim import train_simulated

        return train_simulated(config, out=out or _fresh_folder(config), table=table)
    path = Path(out or config.out or "") if (out or config.out) else _fresh_folder(config)
    setup = prepare(config)
    _warn(config.wire.caution(setup.model.d))
    _limit_threads(setup.model.d)
    federation = setup.mesh() if config.topology else setup.federation()
    folder = RunFolder(
        path,
        federation,
        identity=config.identity(),
        checkpoint_every=config.checkpoint_every,
        capture=config.capture,
        capture_meta=_capture_meta(setup),
    )
    folder.resume() if resume else folder.start()
    config.save(path / "config.yaml")
    with _progress(config, federation.t, quiet) as bar, _stop_on_interrupt() as interrupt:
        extra = [_TensorBoard(path / "tensorboard")] if config.tensorboard else []
        watch = Observers(folder, bar, interrupt, *extra)
        if isinstance(federation, Mesh):
            run_mesh(federation, rounds=config.rounds, observer=watch)
        else:
            run(federation, rounds=config.rounds, observer=watch)
    folder.checkpoint()
    summary = _summary(setup, federation, folder.rows, interrupted=interrupt.stop and federation.t < config.rounds)
    _finish(path, setup, federation, summary)
    if folder.rows:
        write_report(path)
    if table:
        _print(summary, path)
    return summary


def _warn(caution: str | None) -> None:
    """On stderr, so that ``--json -`` stays one object."""
    if caution:
        Console(stderr=True).print(f"warning: {caution}", style="yellow", highlight=False, soft_wrap=True)


def _limit_threads(d: int) -> None:
    """One thread for small models, whose matrix products are too short to share; OMP_NUM_THREADS overrides."""
    if d < 1_000_000 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def _fresh_folder(config: RunConfig) -> Path:
    name = f"{config.task.split(':')[0]}-{config.model.replace(':', '')}-{config.identity()[:6]}"
    path, n = Path("runs") / name, 1
    while path.exists():
        n += 1
        path = Path("runs") / f"{name}-{n}"
    return path


def _capture_meta(setup: Setup) -> dict[str, Any]:
    """What `desketch attack` needs beside the frames: the configuration, and each client's share of the data."""
    config = setup.config
    keys = (
        "task",
        "model",
        "clients",
        "partition",
        "seed",
        "local_steps",
        "eta_local",
        "batch_size",
        "family",
        "codec",
    )
    return {
        **{name: getattr(config, name) for name in keys},
        "d": setup.model.d,
        "b": config.sketch_size(setup.model.d),
        "examples": [len(client.y) for client in setup.clients],
        "config": config.model_dump(mode="json"),
    }


def _summary(
    setup: Setup, federation: Federation | Mesh, rows: list[dict[str, Any]], *, interrupted: bool
) -> dict[str, Any]:
    config, n, d = setup.config, len(setup.clients), setup.model.d
    evaluated = setup.evaluate(federation.model_vector)
    up, down = (sum(row[name] for row in rows) / n for name in ("bytes_up", "bytes_down"))
    fedavg = 4 * d * sum(2 * row["asked"] - row["dropped"] for row in rows) / n
    stopped_by = "interrupt" if interrupted else "budget" if federation.spent_budget else "rounds"
    return {
        "test_accuracy": evaluated["accuracy"],
        "test_loss": evaluated["loss"],
        "val_accuracy": evaluated.get("val_accuracy"),
        "rounds": federation.t,
        "bytes_up_per_client": up,
        "bytes_down_per_client": down,
        "fedavg_bytes_per_client": fedavg,
        "times_fewer_bytes": fedavg / (up + down) if up + down else None,
        "replica_digest": federation.digest(),
        "seconds": sum(row["seconds"] for row in rows),
        "stopped_by": stopped_by,
        "epsilon": federation.privacy.ledger.epsilon() if federation.privacy else None,
        "delta": config.dp.delta if config.dp else None,
        "refused": sum(len(row["refused"]) for row in rows),
        "skipped_rounds": sum(row["participants"] == 0 for row in rows),
        "d": d,
        "b": config.sketch_size(d),
        "clients": n,
        "version": desketch.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        **({"topology": topology_summary(federation, rows)} if isinstance(federation, Mesh) else {}),
    }


def _finish(path: Path, setup: Setup, federation: Federation | Mesh, summary: dict[str, Any]) -> None:
    parameters = setup.model.unflatten(federation.model_vector)
    write_durably(path / "model.safetensors", save({name: value.contiguous() for name, value in parameters.items()}))
    write_durably(path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())


def _print(summary: dict[str, Any], path: Path) -> None:
    table = Table(title="desketch train", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    fewer = f" ({summary['times_fewer_bytes']:,.0f}x more)" if summary["times_fewer_bytes"] else ""
    lines = {
        "test accuracy": f"{summary['test_accuracy']:.2%}",
        "rounds": f"{summary['rounds']} ({summary['stopped_by']})",
        "up per client": human_bytes(summary["bytes_up_per_client"]),
        "down per client": human_bytes(summary["bytes_down_per_client"]),
        "FedAvg would send": f"{human_bytes(summary['fedavg_bytes_per_client'])}{fewer}",
        "replica digest": summary["replica_digest"][:16],
        "seconds": f"{summary['seconds']:.1f}",
        "run folder": str(path),
    }
    if summary["epsilon"] is not None:
        lines["privacy"] = f"({summary['epsilon']:.3g}, {summary['delta']:g})-DP"
    if summary["refused"]:
        lines["refused updates"] = str(summary["refused"])
    if summary["stopped_by"] == "interrupt":
        lines["continue with"] = f"desketch train --resume --out {path}"
    for name, value in lines.items():
        table.add_row(name, value)
    Console().print(table)
    if "topology" in summary:
        print_costs(summary["topology"])


class _Bar(Observer):
    """A progress bar with accuracy and bytes."""

    def __init__(self, progress: Progress, total: int, done: int) -> None:
        self.progress, self.sent = progress, 0
        self.line = progress.add_task("", total=total, completed=done, accuracy="-", sent="-")

    def on_round(self, record: RoundRecord) -> None:
        self.sent += record.bytes_up + record.bytes_down
        fields: dict[str, Any] = {"sent": human_bytes(self.sent)}
        if "accuracy" in record.metrics:
            fields["accuracy"] = f"{record.metrics['accuracy']:.2%}"
        self.progress.update(self.line, completed=record.round, **fields)
        for client, reason in record.refused.items():
            self.progress.console.print(f"round {record.round}: client {client} refused ({reason})", highlight=False)


@contextmanager
def _progress(config: RunConfig, done: int, quiet: bool) -> Iterator[Observer]:
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[sent]} on the wire"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        yield _Bar(progress, config.rounds, done)


@contextmanager
def _stop_on_interrupt() -> Iterator[Observer]:
    """The first Ctrl-C ends the run after the current round; a second one interrupts at once, as usual."""
    flag = Observer()
    before = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: object) -> None:
        flag.stop = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


class _TensorBoard(Observer):
    """Scalars of every round, for those who like them there."""

    def __init__(self, path: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(f"tensorboard is not installed ({error}); pip install 'desketch[tensorboard]'") from None
        self.writer = SummaryWriter(str(path))

    def on_round(self, record: RoundRecord) -> None:
        scalars = {**record.metrics, "bytes_up": record.bytes_up, "bytes_down": record.bytes_down}
        scalars["eta_global"] = record.eta_global
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, record.round)
        self.writer.flush()
