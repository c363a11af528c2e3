"""The constants of a run, finished or only configured: its task, partition and model are built as a run would."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from desketch.core.files import read_sealed
from desketch.core.flat import FlatModel
from desketch.errors import ConfigError
from desketch.tasks.config import RunConfig
from desketch.tasks.curvature import Curvature, estimate_curvature
from desketch.tasks.data import load_task
from desketch.tasks.models import build_model
from desketch.tasks.partitions import partition
from desketch.tasks.run_settings import settings_of

__all__ = ["WARM_STEPS", "estimate_config", "estimate_run"]

WARM_STEPS = 100
_AGAIN = "write it again: desketch train --resume"
_GIVE_THEM = (
    "give one of those, or the constants yourself: --params, --clients, --smoothness, --distance, --spread and "
    "--target-error (desketch plan alone prints such a line)"
)


def estimate_run(folder: Path) -> Curvature:
    """Estimate at the run's last weights, or after a short descent where none were saved."""
    return estimate_config(settings_of(folder, instead=_GIVE_THEM), folder)


def estimate_config(config: RunConfig, folder: Path | None = None) -> Curvature:
    """Estimate for a run with these settings: at the weights saved in ``folder``, or after a short descent."""
    task = load_task(config.task, **config.task_options)
    parts = partition(task, config.partition, config.clients, config.seed)
    model = FlatModel(build_model(config.model, task, seed=config.seed), task.goal.loss)
    w0 = model.flatten()
    w = _saved_weights(folder, model) if folder else None
    if w is None:
        w = _descend(model, w0, task.x_train, task.y_train, eta=config.eta_local)
    clients = [(task.x_train[p], task.y_train[p]) for p in parts]
    return estimate_curvature(model, w0, w, clients, batch=config.batch_size)


def _saved_weights(folder: Path, model: FlatModel) -> Tensor | None:
    """The run's final parameters, by name."""
    file = folder / "model.safetensors"
    if not file.is_file():
        return None
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = file.read_bytes()
    try:
        saved = load(read_sealed(file, _AGAIN) if b'"sha256":"' in data else data)  # another tool's has no seal
    except SafetensorError as error:
        raise ConfigError(f"cannot read {file}: {error}; {_AGAIN}") from None
    missing = [name for name in model.names if name not in saved]
    if missing:
        raise ConfigError(f"{file} lacks parameter {missing[0]}: it belongs to another model than config.yaml names")
    return torch.cat([saved[name].reshape(-1) for name in model.names])


def _descend(model: FlatModel, w0: Tensor, x: Tensor, y: Tensor, *, eta: float) -> Tensor:
    w = w0
    for step in range(WARM_STEPS):
        batch = torch.randperm(len(y), generator=torch.Generator().manual_seed(step))[:256]
        w = w - eta * model.gradient(w, x[batch], y[batch])
    return w
