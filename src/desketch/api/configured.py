"""A run from a configuration of built-in tasks and models: parties, engine, folder, progress, summary, report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from desketch.core.checkpoint import has_checkpoint
from desketch.core.locks import sole_writer
from desketch.errors import ConfigError, RunError
from desketch.fed import Federation, Observer, Observers, RoundRecord, run
from desketch.fed.turnout import Turnout
from desketch.mesh.rounds import Mesh, run_mesh
from desketch.mesh.summary import topology_summary
from desketch.run.folder import RunFolder
from desketch.run.progress import Progress
from desketch.run.signals import stop_on_signals
from desketch.session.server import ServerSession
from desketch.session.store import SimulatedStores
from desketch.tasks import RunConfig, Setup, prepare
from desketch.tasks.parties import server_session
from desketch.tasks.summary import capture_meta, summarise, write_outcome
from desketch.tasks.worth import measure_worth

__all__ = ["run_path", "train_run"]


def train_run(
    config: RunConfig, *, out: Path | None = None, resume: bool = False, progress: bool = False
) -> dict[str, Any]:
    """Run, write the run folder with its report, and return the summary."""
    path = run_path(config, out)
    setup = prepare(config)
    _warn(config.wire.caution(setup.model.d))
    _limit_threads(setup.model.d)
    with sole_writer(path, seconds=1.0):  # two that resume one run would release more than either charges
        return _run_in(path, setup, resume=resume, progress=progress)


def _run_in(path: Path, setup: Setup, *, resume: bool, progress: bool) -> dict[str, Any]:
    config = setup.config
    party, rounds = _engine(setup)
    folder = RunFolder(
        path,
        party,
        identity=config.identity(),
        checkpoint_every=config.checkpoint_every,
        capture=config.capture,
        capture_meta=capture_meta(setup),
        config=config.sealed(),
    )
    with stop_on_signals() as stop, _resumable(folder):
        if resume:
            _resume(config, path, folder)
        else:
            folder.start()
        with Progress(
            config.rounds, done=party.t, rows=folder.rows, show=progress, metric=setup.task.goal.metric
        ) as bar:
            extra = [_TensorBoard(path / "tensorboard")] if config.tensorboard else []
            turnout = Turnout()
            rounds(Observers(folder, bar, stop, turnout, *extra))
        folder.checkpoint()
        cut = stop.signal if party.t < config.rounds else None
        summary = summarise(setup, party, folder.rows, interrupted=cut is not None)
        if cut:
            summary["signal"] = cut.name
        worth = None if cut else measure_worth(setup, folder.rows)
        summary["alone"] = worth.row() if worth else None
        if isinstance(party, Mesh):
            summary["topology"] = topology_summary(party, folder.rows)
        write_outcome(path, setup, party, summary)
        if folder.rows:
            from desketch.report import write_report  # it draws plots: not before they are wanted

            write_report(path)
        turnout.check()  # all is written, but it is no result
    return summary


def _resume(config: RunConfig, path: Path, folder: RunFolder) -> None:
    """Go on from the folder; a setting that differs is named, and rounds that are done are not undone."""
    with suppress(ConfigError):  # a damaged config.yaml is made again; the checkpoint knows the run's identity
        if (path / "config.yaml").is_file() and (changed := config.differences(RunConfig.load(path / "config.yaml"))):
            raise RunError(
                f"{path} was run with other settings ({'; '.join(changed)}); resume with those, or start anew"
            )
    folder.resume()
    if folder.federation.t > config.rounds:
        raise RunError(
            f"{path} has {folder.federation.t} rounds already, more than --rounds {config.rounds}; ask for more"
        )


@contextmanager
def _resumable(folder: RunFolder) -> Iterator[None]:
    """A full disk or a lost folder ends the run with one sentence that says how it goes on."""
    try:
        yield
    except OSError as error:
        safe = has_checkpoint(folder.path / "checkpoint")
        go_on = f"then go on from round {folder.saved} with: desketch train --resume --out {folder.path}"
        raise RunError(
            f"{error.filename or folder.path}: {error.strerror or error}; mend that, "
            f"{go_on if safe else 'or choose another folder with --out'}"
        ) from error


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
        from desketch.integrations.flower.simulation import simulate
    except ImportError as error:
        raise ConfigError(f"Flower is not installed ({error}); pip install 'desketch[flower]'") from None
    session = server_session(setup, stores=(stores := SimulatedStores()))
    return session, lambda watch: simulate(setup, session, stores, observer=watch)


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


class _TensorBoard(Observer):
    """Scalars of every round, for those who like them there."""

    def __init__(self, path: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(f"tensorboard is not installed ({error}); pip install 'desketch[tensorboard]'") from None
        self.writer = SummaryWriter(str(path))

    def on_round(self, record: RoundRecord) -> None:
        row = record.row()  # what may be published of it
        scalars = {**record.metrics, "bytes_up": row["bytes_up"], "bytes_down": row["bytes_down"]}
        scalars["eta_global"] = record.eta_global
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, record.round)
        self.writer.flush()
