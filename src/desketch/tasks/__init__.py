"""Data sets, partitions, models and the configuration of a run; names load on first use, `RunConfig` without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desketch.tasks.config import DpConfig, RunConfig
    from desketch.tasks.data import Task, load_task, task_from_arrays
    from desketch.tasks.federation import Setup, prepare
    from desketch.tasks.models import MODELS, build_model
    from desketch.tasks.partitions import PARTITIONS, partition

_EXPORTS = {
    "DpConfig": "config",
    "MODELS": "models",
    "PARTITIONS": "partitions",
    "RunConfig": "config",
    "Setup": "federation",
    "Task": "data",
    "build_model": "models",
    "load_task": "data",
    "partition": "partitions",
    "prepare": "federation",
    "task_from_arrays": "data",
}

__all__ = [
    "MODELS",
    "PARTITIONS",
    "DpConfig",
    "RunConfig",
    "Setup",
    "Task",
    "build_model",
    "load_task",
    "partition",
    "prepare",
    "task_from_arrays",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'desketch.tasks' has no attribute {name!r}")
    value = getattr(import_module(f"desketch.tasks.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value
