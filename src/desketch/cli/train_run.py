"""What ``desketch train`` does once its settings are known: parties, folder, progress, summary."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from desketch.cli.mesh_summary import print_costs, topology_summary
from desketch.core.metrics import METRICS, Metric
from desketch.errors import ConfigError
from desketch.fed import Federation, Observer, Observers, RoundRecord, run
from desketch.mesh.rounds import Mesh, run_mesh
from desketch.report import write_report
from desketch.report.sections import human_bytes
from desketch.run.folder import RunFolder
from desketch.session.server import ServerSession
from desketch.tasks import RunConfig, Setup, prepare
from desketch.tasks.summary import capture_meta, summarise, write_outcome

__all__ = ["judgement", "train_run"]


def train_run(
    config: RunConfig, *, out: Path | None = None, resume: bool = False, quiet: bool = True, table: bool = False
) -> dict[str, Any]:
    """Run, write the run folder, and return the summary."""
    path = Path(out or config.out or "") if (out or config.out) else _fresh_folder(config)
    setup = prepare(config)
    _warn(config.wire.caution(setup.model.d))
    _limit_threads(setup.model.d)
    party, rounds = _engine(setup)
    folder = RunFolder(
        path,
        party,
        identity=config.identity(),
        checkpoint_every=config.checkpoint_every,
        capture=config.capture,
        capture_meta=capture_meta(setup),
    )
    folder.resume() if resume else folder.start()
    config.save(path / "config.yaml")
    with _progress(config, setup.task.goal.metric, party.t, quiet) as bar, _stop_on_interrupt() as interrupt:
        extra = [_TensorBoard(path / "tensorboard")] if config.tensorboard else []
        rounds(Observers(folder, bar, interrupt, *extra))
    folder.checkpoint()
    summary = summarise(setup, party, folder.rows, interrupted=interrupt.stop and party.t < config.rounds)
    if isinstance(party, Mesh):
        summary["topology"] = topology_summary(party, folder.rows)
    write_outcome(path, setup, party, summary)
    if folder.rows:
        write_report(path)
    if table:
        _print(summary, path)
    return summary


Party = Federation | Mesh | ServerSession


def _engine(setup: Setup) -> tuple[Party, Callable[[Observer], None]]:
    """The party that ends with the model, and what drives its rounds: the only thing that engines differ in."""
    config = setup.config
    if config.engine == "flower-sim":
        from desketch.cli.train_sim import simulated

        return simulated(setup)
    if config.topology:
        mesh = setup.mesh()
        return mesh, lambda watch: run_mesh(mesh, rounds=config.rounds, observer=watch)
    federation = setup.federation()
    return federation, lambda watch: run(federation, rounds=config.rounds, observer=watch)


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


def _print(summary: dict[str, Any], path: Path) -> None:
    table = Table(title="desketch train", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    fewer = f" ({summary['times_fewer_bytes']:,.0f}x more)" if summary["times_fewer_bytes"] else ""
    lines = {
        **judgement(summary),
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


def judgement(summary: dict[str, Any]) -> dict[str, str]:
    """The test metrics of a summary, for people; the one that judges first comes first."""
    known = {name: summary.get(f"test_{name}") for name in METRICS}
    return {f"test {METRICS[name].title}": METRICS[name].show(v) for name, v in known.items() if v is not None}


class _Bar(Observer):
    """A progress bar with the task's metric and bytes."""

    def __init__(self, progress: Progress, metric: Metric, total: int, done: int) -> None:
        self.progress, self.metric, self.sent = progress, metric, 0
        self.line = progress.add_task("", total=total, completed=done, value="-", sent="-")

    def on_round(self, record: RoundRecord) -> None:
        self.sent += record.bytes_up + record.bytes_down
        fields: dict[str, Any] = {"sent": human_bytes(self.sent)}
        if self.metric.name in record.metrics:
            fields["value"] = self.metric.show(record.metrics[self.metric.name])
        self.progress.update(self.line, completed=record.round, **fields)
        for client, reason in record.refused.items():
            self.progress.console.print(f"round {record.round}: client {client} refused ({reason})", highlight=False)
        if record.void:
            self.progress.console.print(f"round {record.round}: void ({record.void})", highlight=False)


@contextmanager
def _progress(config: RunConfig, metric: Metric, done: int, quiet: bool) -> Iterator[Observer]:
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn(metric.title + " {task.fields[value]}"),
        TextColumn("{task.fields[sent]} on the wire"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        yield _Bar(progress, metric, config.rounds, done)


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
