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
from desketch.fed.local import ClientData, LocalWork, Visit, batch_indices, local_update
from desketch.fed.mechanism import StepMechanism

__all__ = ["Engine", "LoopEngine", "VmapEngine"]

CHUNK_BYTES = 64 << 20


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
        indices = [batch_indices(work, t=t, client=data.client, examples=len(data.y)) for data in cohort]
        for rows in self._chunks(indices):
            yield rows, self.train(w, [cohort[i] for i in rows], torch.stack([indices[i] for i in rows]), work.eta)

    @abstractmethod
    def train(self, w: Tensor, clients: Sequence[ClientData], index: Tensor, eta: float) -> Tensor:
        """Δw (n, d) of n clients on the examples ``index (n, K, B)`` of each."""

    def _chunks(self, indices: Sequence[Tensor]) -> Iterator[list[int]]:
        size = max(1, CHUNK_BYTES // (4 * self.model.d * self.copies))
        order = sorted(range(len(indices)), key=lambda i: indices[i].shape)
        for _, group in groupby(order, key=lambda i: indices[i].shape):
            same = list(group)
            yield from (same[i : i + size] for i in range(0, len(same), size))

    copies = 4  # of w per client while training


class VmapEngine(BatchedEngine):
    """torch.func: the gradient, mapped over clients."""

    def train(self, w: Tensor, clients: Sequence[ClientData], index: Tensor, eta: float) -> Tensor:
        """K mapped gradient steps."""
        gradient = torch.func.vmap(torch.func.grad(self.model.loss))
        u = w.repeat(len(clients), 1)
        for step in index.unbind(1):
            u -= eta * gradient(u, *gather(clients, step))
        return u.sub_(w)


def gather(clients: Sequence[ClientData], index: Tensor) -> tuple[Tensor, Tensor]:
    """The batches (n, B, ...) that ``index (n, B)`` picks from each client's data."""
    xs = torch.stack([data.x[i] for data, i in zip(clients, index, strict=True)])
    ys = torch.stack([data.y[i] for data, i in zip(clients, index, strict=True)])
    return xs, ys
