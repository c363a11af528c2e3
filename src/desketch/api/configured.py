"""A run from a configuration of built-in tasks and models: parties, engine, folder, progress, summary, report."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from desketch.errors import ConfigError, RunError
from desketch.fed import Federation, Observer, Observers, RoundRecord, run
from desketch.mesh.rounds import Mesh, run_mesh
from desketch.mesh.summary import topology_summary
from desketch.run.folder import RunFolder
from desketch.run.progress import Progress
from desketch.session.server import ServerSession
from desketch.tasks import RunConfig, Setup, prepare
from desketch.tasks.summary import capture_meta, summarise, write_outcome

__all__ = ["run_path", "train_run"]


def train_run(
    config: RunConfig, *, out: Path | None = None, resume: bool = False, progress: bool = False
) -> dict[str, Any]:
    """Run, write the run folder with its report, and return the summary."""
    path = run_path(config, out)
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
    if resume:
        _check_resumable(config, path, folder)
    else:
        folder.start()
    config.save(path / "config.yaml")
    bar = Progress(config.rounds, done=party.t, show=progress, metric=setup.task.goal.metric)
    with bar, _stop_on_interrupt() as interrupt:
        extra = [_TensorBoard(path / "tensorboard")] if config.tensorboard else []
        rounds(Observers(folder, bar, interrupt, *extra))
    folder.checkpoint()
    summary = summarise(setup, party, folder.rows, interrupted=interrupt.stop and party.t < config.rounds)
    if isinstance(party, Mesh):
        summary["topology"] = topology_summary(party, folder.rows)
    write_outcome(path, setup, party, summary)
    if folder.rows:
        from desketch.report import write_report  # it draws plots: not before they are wanted

        write_report(path)
    return summary


def _check_resumable(config: RunConfig, path: Path, folder: RunFolder) -> None:
    """Go on from the folder; a setting that differs is named, and rounds that are done are not undone."""
    if (path / "config.yaml").is_file() and (changed := config.differences(RunConfig.load(path / "config.yaml"))):
        raise RunError(f"{path} was run with other settings ({'; '.join(changed)}); resume with those, or start anew")
    folder.resume()
    if folder.federation.t > config.rounds:
        raise RunError(
            f"{path} has {folder.federation.t} rounds already, more than --rounds {config.rounds}; ask for more"
        )


Party = Federation | Mesh | ServerSession


def _engine(setup: Setup) -> tuple[Party, Callable[[Observer], None]]:
    """The party that ends with the model, and what drives its rounds: the only thing that engines differ in."""
    config = setup.config
    if config.engine == "flower-sim":
        return _simulated(setup)
    if config.topology:
        mesh = setup.mesh()
        return mesh, lambda watch: run_mesh(mesh, rounds=config.rounds, observer=watch)
    federation = setup.federation()
    return federation, lambda watch: run(federation, rounds=config.rounds, observer=watch)


def _simulated(setup: Setup) -> tuple[ServerSession, Callable[[Observer], None]]:
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


def _warn(caution: str | None) -> None:
    """On stderr, so that ``--json -`` stays one object."""
    if caution:
        Console(stderr=True).print(f"warning: {caution}", style="yellow", highlight=False, soft_wrap=True)


def _limit_threads(d: int) -> None:
    """One thread for small models, whose matrix products are too short to share; OMP_NUM_THREADS overrides."""
    if d < 1_000_000 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def run_path(config: RunConfig, out: Path | None = None) -> Path:
    """The folder given, the one configured, or a new one under ``runs``."""
    if out or config.out:
        return Path(out or config.out or "")
    name = f"{config.task.split(':')[0]}-{config.model.replace(':', '')}-{config.identity()[:6]}"
    path, n = Path("runs") / name, 1
    while path.exists():
        n += 1
        path = Path("runs") / f"{name}-{n}"
    return path


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
