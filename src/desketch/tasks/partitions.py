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
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.core.on_demand import OnDemand
from desketch.errors import ConfigError
from desketch.tasks.data import Task

__all__ = ["PARTITIONS", "Parts", "partition"]

Indices = npt.NDArray[np.int64]
Rng = np.random.Generator
_TENTHS = 10


class Parts(OnDemand[Tensor]):
    """Who holds what: a sorted index tensor per client, all of them stretches of one ``order``."""

    def __init__(self, owners: Indices, clients: int) -> None:
        """``owners`` is the client of every example."""
        self.order = torch.from_numpy(np.argsort(owners, kind="stable"))
        self.starts: list[int] = [0, *np.cumsum(np.bincount(owners, minlength=clients)).tolist()]
        super().__init__(clients, lambda c: self.order[self.starts[c] : self.starts[c + 1]])


def partition(task: Task, spec: str, clients: int, seed: int) -> Parts:
    """Deal the training examples out, a pure function of its arguments."""
    kind, _, argument = spec.partition(":")
    if kind not in PARTITIONS or bool(argument) == (kind == "iid"):
        raise ConfigError(f"unknown partition {spec!r}; choose iid, dirichlet:0.5, shards:2 or column:NAME")
    n = len(task.y_train)
    if not 1 <= clients <= n:
        raise ConfigError(f"{n} training examples cannot be dealt out to {clients} clients; choose 1 to {n} clients")
    return Parts(PARTITIONS[kind](task, argument, clients, np.random.default_rng(seed)), clients)


def _iid(task: Task, _: str, clients: int, rng: Rng) -> Indices:
    n = len(task.y_train)
    owners = np.empty(n, np.int64)
    owners[rng.permutation(n)] = _even(n, clients)
    return owners


def _even(n: int, parts: int) -> Indices:
    """The part of each of n things in a row, cut as evenly as can be, the longer parts first."""
    return np.repeat(np.arange(parts), n // parts + (np.arange(parts) < n % parts))


def _dirichlet(task: Task, argument: str, clients: int, rng: Rng) -> Indices:
    concentration = _number(argument, "dirichlet:A", minimum=1e-3)
    strata = _strata(task)
    dealt, owners = [], []
    for c in range(int(strata.max()) + 1):
        members = rng.permutation(np.flatnonzero(strata == c))
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(clients, concentration)))[:-1] * len(members)).astype(int)
        dealt.append(members)
        owners.append(np.searchsorted(cuts, np.arange(len(members)), side="right"))
    return _fill_empty(np.concatenate(dealt), np.concatenate(owners), clients)


def _strata(task: Task) -> Indices:
    """The class of each example, or what stands for it."""
    key = task.goal.sort_key(task.y_train)
    if task.goal.discrete:
        return key
    ranks = np.empty(len(key), np.int64)
    ranks[np.argsort(key, kind="stable")] = np.arange(len(key))
    return ranks * _TENTHS // len(key)


def _fill_empty(dealt: Indices, holders: Indices, clients: int) -> Indices:
    """The owners of examples 0..n-1; each empty client gets the last one of the first client that has most."""
    sizes = np.bincount(holders, minlength=clients)
    by_holder = np.argsort(holders, kind="stable")
    ends = np.cumsum(sizes)
    heap = [(-int(size), client) for client, size in enumerate(sizes)]
    heapify(heap)
    for empty in np.flatnonzero(sizes == 0).tolist():
        size, rich = heap[0]
        heapreplace(heap, (size + 1, rich))
        ends[rich] -= 1
        holders[by_holder[ends[rich]]] = empty
    owners = np.empty_like(holders)
    owners[dealt] = holders
    return owners


def _shards(task: Task, argument: str, clients: int, rng: Rng) -> Indices:
    per_client = int(_number(argument, "shards:K", minimum=1, whole=True))
    n = len(task.y_train)
    if clients * per_client > n:
        raise ConfigError(f"{clients} clients x {per_client} shards exceed {n} training examples; lower one of them")
    by_label = rng.permutation(n)
    by_label = by_label[np.argsort(task.goal.sort_key(task.y_train)[by_label], kind="stable")]
    holders = np.empty(clients * per_client, np.int64)
    holders[rng.permutation(len(holders))] = np.repeat(np.arange(clients), per_client)
    owners = np.empty(n, np.int64)
    owners[by_label] = holders[_even(n, len(holders))]
    return owners


def _column(task: Task, name: str, clients: int, _: Rng) -> Indices:
    if name not in task.columns:
        known = ", ".join(sorted(task.columns)) or "none"
        raise ConfigError(f"{task.name} has no column {name!r} to partition by; its columns: {known}")
    values, codes = np.unique(task.columns[name], return_inverse=True)
    if len(values) != clients:
        raise ConfigError(
            f"column {name!r} has {len(values)} values, so there are {len(values)} clients, not {clients}"
        )
    return codes.reshape(-1)


PARTITIONS: dict[str, Callable[[Task, str, int, Rng], Indices]] = {  # the owner of every example
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
