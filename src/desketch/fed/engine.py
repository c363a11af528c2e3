"""Engines: the local steps of a whole cohort, Δ_c(t) for every client c, on one machine.

Three engines compute the same thing to rounding.  `LoopEngine` calls `local_update` client by client: the oracle, and
the fallback for anything a batch cannot express (dropout, noise per step, loops that torch.func refuses).  `VmapEngine`
maps the gradient over clients with torch.func.  `MlpEngine` (``mlp_engine.py``) writes the back-propagation of a
multi-layer perceptron as batched matrix products that update the weights in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from desketch.core.flat import FlatModel
from desketch.core.vectors import empty
from desketch.errors import InputError
from desketch.fed.local import ClientData, LocalWork, Visit, cohort_indices, local_update
from desketch.fed.mechanism import StepMechanism

__all__ = ["Engine", "LoopEngine", "VmapEngine"]

CHUNK_BYTES = 64 << 20
BATCH_BYTES = 64 << 20


class Engine(ABC):
    """Computes Δ_c(t) for a cohort; ``step`` is what makes its local steps private, if anything does."""

    step: StepMechanism | None = None

    def __init__(self, model: FlatModel) -> None:
        self.model = model

    @abstractmethod
    def chunks(
        self, w: Tensor, cohort: Sequence[ClientData], work: LocalWork, *, t: int
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Places in the cohort, each place once, and the rows Δ_c(t) of those clients."""

    def updates(self, w: Tensor, cohort: Sequence[ClientData], work: LocalWork, *, t: int) -> Tensor:
        """The rows Δ_c(t), (n, d), in the cohort's order."""
        out = w.new_empty(len(cohort), self.model.d)
        for places, rows in self.chunks(w, cohort, work, t=t):
            out[places] = rows
        return out


class LoopEngine(Engine):
    """One client after the other."""

    def __init__(self, model: FlatModel, step: StepMechanism | None = None, visit: Visit | None = None) -> None:
        super().__init__(model)
        self.step, self.visit = step, visit

    def chunks(
        self, w: Tensor, cohort: Sequence[ClientData], work: LocalWork, *, t: int
    ) -> Iterator[tuple[list[int], Tensor]]:
        """`local_update` of every client."""
        for i, data in enumerate(cohort):
            yield [i], local_update(self.model, w, data, work, t=t, step=self.step, visit=self.visit)[None]


class BatchedEngine(Engine):
    """Clients whose batches have one shape are trained together, in chunks that fit the memory bound."""

    def chunks(
        self, w: Tensor, cohort: Sequence[ClientData], work: LocalWork, *, t: int
    ) -> Iterator[tuple[list[int], Tensor]]:
        """As many clients at a time as `train` takes."""
        who, examples = [data.client for data in cohort], [len(data.y) for data in cohort]
        indices = cohort_indices(work, t=t, clients=who, examples=examples)
        for rows in self._chunks(cohort, indices):
            yield rows, self.train(w, [cohort[i] for i in rows], torch.stack([indices[i] for i in rows]), work.eta)

    @abstractmethod
    def train(self, w: Tensor, clients: Sequence[ClientData], index: Tensor, eta: float) -> Tensor:
        """Δw (n, d) of n clients on the examples ``index (n, K, B)`` of each."""

    def _chunks(self, cohort: Sequence[ClientData], indices: Sequence[Tensor]) -> Iterator[list[int]]:
        order = sorted(range(len(indices)), key=lambda i: indices[i].shape)
        for (_, B), group in groupby(order, key=lambda i: indices[i].shape):
            same = list(group)
            own = 4 * self.model.d + B * _row_bytes(cohort[same[0]])
            size = max(1, CHUNK_BYTES // (self.copies * own))
            yield from (same[i : i + size] for i in range(0, len(same), size))

    copies = 4  # of w and of a batch per client while training


class VmapEngine(BatchedEngine):
    """torch.func: the gradient, mapped over clients."""

    def train(self, w: Tensor, clients: Sequence[ClientData], index: Tensor, eta: float) -> Tensor:
        """K mapped gradient steps."""
        gradient = torch.func.vmap(torch.func.grad(self.model.loss))
        u = w.repeat(len(clients), 1)
        for x, y in batches(clients, index):
            u -= eta * gradient(u, x, y)
        return u.sub_(w)


def batches(clients: Sequence[ClientData], index: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches (n, B, ...) that ``index (n, K, B)`` picks from each client's data, step by step.

    A call for each client costs more than the rows that it copies, so the rows of several steps are taken at once.
    """
    n, _, B = index.shape
    together = max(1, BATCH_BYTES // (n * B * _row_bytes(clients[0])))
    for steps in torch.split(index, together, dim=1):
        xs, ys = (_rows(clients, [getattr(data, name) for data in clients], steps) for name in ("x", "y"))
        yield from zip(xs.unbind(1), ys.unbind(1), strict=True)


def _row_bytes(data: ClientData) -> int:
    return max(1, data.x[:1].nbytes)


def _rows(clients: Sequence[ClientData], own: Sequence[Tensor], index: Tensor) -> Tensor:
    """(n, k, B, ...): the rows of each client's own tensor that ``index (n, k, B)`` names."""
    like, flat = own[0], index.to(own[0].device).flatten(1)
    out = empty((*flat.shape, *like.shape[1:]), like)
    for data, tensor, rows, room in zip(clients, own, flat.unbind(0), out.unbind(0), strict=True):
        if tensor.shape[1:] != like.shape[1:] or tensor.dtype != like.dtype:
            raise InputError(
                f"client {data.client} has examples {tuple(tensor.shape[1:])} {tensor.dtype}, client "
                f"{clients[0].client} {tuple(like.shape[1:])} {like.dtype}; all must be alike"
            )
        torch.index_select(tensor, 0, rows, out=room)
    return out.view(*index.shape, *like.shape[1:])
