"""DeComFL: clients measure how their loss changes along public random directions and send these numbers alone.

Li, Ying, Liu, Dong, Yang, "Achieving dimension-free communication in federated learning via zeroth-order optimization",
ICLR 2025.  Local step k of round t has P directions that follow from the run's key, the rows z_1 ... z_P of a Gaussian
matrix, the same for every client; client c takes

    q_p = (f_c(u + mu z_p) - f_c(u)) / mu,     u <- u - (eta/P) Σ_p q_p z_p

on a batch of its own, by forward passes only, and sends the K P numbers -eta q.  The server averages them and sends
K P numbers back, from which every replica rebuilds the mean of the clients' changes.  With R = Z/sqrt(P), of entries
N(0, 1/P), this is a step along RᵀR∇f: a Gaussian sketch of b = P numbers, measured by differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from desketch import wire
from desketch.baselines.channel import CompressedChannel
from desketch.baselines.dense import Dense
from desketch.core.flat import FlatModel
from desketch.errors import InputError
from desketch.fed.local import ClientData, LocalWork, batch_indices
from desketch.fed.update import Update
from desketch.keys import Key
from desketch.sketches import Sketch, draw

__all__ = ["Directions", "ZerothOrderClient", "ZerothOrderCrew", "zeroth_order_clients"]

MU = 1e-3  # the paper's, on directions of entries N(0, 1)


class Directions(CompressedChannel):
    """Carries rows of ``steps * directions`` coefficients, in half precision, both ways."""

    def __init__(
        self, *, d: int, steps: int, directions: int, key: Key, run: int = 0, agreed: Mapping[int, float] | None = None
    ) -> None:
        if steps < 1 or not 1 <= directions <= d:
            raise InputError(f"there are K >= 1 steps and 1 to d={d} directions, got {steps} and {directions}")
        code = Dense(d=steps * directions, codec="f16")
        super().__init__(name="decomfl", up=code, down=code, key=key, run=run, agreed=agreed)
        self.d, self.steps, self.directions = d, steps, directions

    def sketch_at(self, t: int, k: int) -> Sketch:
        """The directions of local step k of round t, as the rows of R."""
        return draw("gaussian", d=self.d, b=self.directions, key=self.key.fold_in("round", t, "directions", k))

    def vector(self, t: int, row: Tensor) -> Tensor:
        """The change of w that a row of coefficients stands for."""
        u = torch.zeros(self.d)
        for k, coefficients in enumerate(row.view(self.steps, self.directions)):
            self.sketch_at(t, k).desketch_add_(u, coefficients.contiguous())
        return u

    def decode_broadcast(self, t: int, frame: bytes) -> Update:
        """The mean of the clients' changes."""
        _, payload = wire.open_short(frame, self.header(t, "broadcast"))
        row = self.down.decode(bytes(payload), key=self.message_key(t, "broadcast", 0))
        return Update(self.vector(t, row), float(torch.linalg.vector_norm(row, dtype=torch.float64)), row.numel())


@dataclass(frozen=True)
class ZerothOrderCrew:
    """Takes the local steps of all clients side by side, so that the directions of a step are drawn once."""

    model: FlatModel
    work: LocalWork
    channel: Directions

    def updates(self, w: Tensor, participants: Sequence[ZerothOrderClient], t: int) -> tuple[Tensor, list[float]]:
        """Every client's coefficients, (n, K P), and its weight."""
        data = [participant.data for participant in participants]
        batches = [batch_indices(self.work, t=t, client=one.client, examples=len(one.y)) for one in data]
        u = w.repeat(len(data), 1)
        rows = w.new_empty(len(data), self.work.steps, self.channel.directions)
        for k in range(self.work.steps):
            R = self.channel.sketch_at(t, k).desketch(torch.eye(self.channel.directions))
            for c, (one, batch) in enumerate(zip(data, batches, strict=True)):
                slopes = self._slopes(u[c], R, one.x[batch[k]], one.y[batch[k]])
                rows[c, k] = slopes.mul_(-self.work.eta)
                u[c] += rows[c, k] @ R
        return rows.flatten(1), [one.weight for one in data]

    @torch.no_grad()
    def _slopes(self, u: Tensor, R: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The differences of the loss at u along each row of R."""
        mu = MU * sqrt(len(R))  # rows of R are the paper's directions over sqrt(P)
        moved = torch.stack([self.model.loss(u + mu * r, x, y) for r in R])  # some layers do not run under vmap
        return (moved - self.model.loss(u, x, y)).div_(mu)


@dataclass(frozen=True)
class ZerothOrderClient:
    """A client that moves along public directions; its update is given in their coordinates."""

    data: ClientData
    crew: ZerothOrderCrew

    @property
    def client(self) -> int:
        """The client's id."""
        return self.data.client

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """The change of w itself, as the crew computes it for one."""
        rows, weights = self.crew.updates(w, [self], t)
        return self.crew.channel.vector(t, rows[0]), weights[0]


def zeroth_order_clients(
    channel: Directions, data: Sequence[ClientData], model: FlatModel, work: LocalWork
) -> list[ZerothOrderClient]:
    """The participants of a run over ``channel``."""
    if work.steps != channel.steps:
        raise InputError(f"the channel has directions for {channel.steps} local steps, the work has {work.steps}")
    crew = ZerothOrderCrew(model, work, channel)
    return [ZerothOrderClient(one, crew) for one in data]
