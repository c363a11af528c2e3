"""Partitions: which client holds which training examples; no client is ever empty, no example is held twice.

========================  ==============================================================================
``iid``                   shuffled and dealt out evenly
``dirichlet:A``           per class, shares of the clients ~ Dirichlet(A, ..., A)  (Hsu, Qi, Brown 2019)
``shards:K``              sorted by label, cut in K shards per client, dealt out (McMahan et al. 2017)
``column:NAME``           one client per value of a column of the data
========================  ==============================================================================

Where there are no classes, a set of labels is one; numbers to predict are sorted by value and the windows of a text by
their place (so ``shards:K`` gives a client K contiguous stretches), and tenths of that order stand for the classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.errors import ConfigError
from desketch.tasks.data import Task

__all__ = ["PARTITIONS", "partition"]

Indices = npt.NDArray[np.int64]
Rng = np.random.Generator
_TENTHS = 10


def partition(task: Task, spec: str, clients: int, seed: int) -> list[Tensor]:
    """Deal the training examples out: one sorted index tensor per client, a pure function of its arguments."""
    kind, _, argument = spec.partition(":")
    if kind not in PARTITIONS or bool(argument) == (kind == "iid"):
        raise ConfigError(f"unknown partition {spec!r}; choose iid, dirichlet:0.5, shards:2 or column:NAME")
    n = len(task.y_train)
    if not 1 <= clients <= n:
        raise ConfigError(f"{n} training examples cannot be dealt out to {clients} clients; choose 1 to {n} clients")
    parts = PARTITIONS[kind](task, argument, clients, np.random.default_rng(seed))
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def _iid(task: Task, _: str, clients: int, rng: Rng) -> list[Indices]:
    return list(np.array_split(rng.permutation(len(task.y_train)), clients))


def _dirichlet(task: Task, argument: str, clients: int, rng: Rng) -> list[Indices]:
    concentration = _number(argument, "dirichlet:A", minimum=1e-3)
    strata = _strata(task)
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for c in range(int(strata.max()) + 1):
        members = rng.permutation(np.flatnonzero(strata == c))
        cuts = np.cumsum(rng.dirichlet(np.full(clients, concentration)))[:-1] * len(members)
        for part, piece in zip(parts, np.split(members, np.round(cuts).astype(int)), strict=True):
            part.append(piece)
    return _fill_empty([np.concatenate(part) for part in parts])


def _strata(task: Task) -> Indices:
    """The class of each example, or what stands for it."""
    key = task.goal.sort_key(task.y_train)
    if task.goal.discrete:
        return key
    ranks = np.empty(len(key), np.int64)
    ranks[np.argsort(key, kind="stable")] = np.arange(len(key))
    return ranks * _TENTHS // len(key)


def _fill_empty(parts: list[Indices]) -> list[Indices]:
    """Give each empty client one example of the client that has most."""
    for i, part in enumerate(parts):
        if part.size == 0:
            rich = int(np.argmax([p.size for p in parts]))
            parts[i], parts[rich] = parts[rich][-1:], parts[rich][:-1]
    return parts


def _shards(task: Task, argument: str, clients: int, rng: Rng) -> list[Indices]:
    per_client = int(_number(argument, "shards:K", minimum=1, whole=True))
    n = len(task.y_train)
    if clients * per_client > n:
        raise ConfigError(f"{clients} clients x {per_client} shards exceed {n} training examples; lower one of them")
    by_label = rng.permutation(n)
    by_label = by_label[np.argsort(task.goal.sort_key(task.y_train)[by_label], kind="stable")]
    shards = np.array_split(by_label, clients * per_client)
    order = rng.permutation(len(shards)).reshape(clients, per_client)
    return [np.concatenate([shards[i] for i in row]) for row in order]


def _column(task: Task, name: str, clients: int, _: Rng) -> list[Indices]:
    if name not in task.columns:
        known = ", ".join(sorted(task.columns)) or "none"
        raise ConfigError(f"{task.name} has no column {name!r} to partition by; its columns: {known}")
    values, codes = np.unique(task.columns[name], return_inverse=True)
    if len(values) != clients:
        raise ConfigError(
            f"column {name!r} has {len(values)} values, so there are {len(values)} clients, not {clients}"
        )
    return [np.flatnonzero(codes == c) for c in range(clients)]


PARTITIONS: dict[str, Callable[[Task, str, int, Rng], list[Indices]]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "column": _column,
}


def _number(text: str, form: str, *, minimum: float, whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"partition {form} needs a number, got {text!r}") from None
    if not minimum <= value < float("inf") or (whole and value != int(value)):
        raise ConfigError(f"partition {form} needs a {'whole ' if whole else ''}number >= {minimum:g}, got {text!r}")
    return value
