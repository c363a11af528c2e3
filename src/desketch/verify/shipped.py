"""An objective of `desketch.verify` as a federation of `desketch.fed`: the one place that knows how the two fit.

Clients take K full gradient steps on their own f_c; everything after that, sketch, codec, frames, server, replica, is
the shipped code. Nothing else in this room imports ``fed``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from desketch.fed import Federation, Participant, SketchChannel, make_optimizer, run
from desketch.keys import Key
from desketch.verify.objectives import KnownObjective

__all__ = ["Path", "Route", "through_the_wire", "train"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A family at its default layout and a codec, both ways."""

    family: str
    d: int
    b: int
    codec: str

    def channel(self, key: Key) -> SketchChannel:
        """The channel that carries it."""
        return SketchChannel(d=self.d, b=self.b, key=key, family=self.family, codec=self.codec, robust="none")


@dataclass(frozen=True)
class Path:
    """A finished run: the replica's iterates, and of every round the mean over clients and steps k < K of u_c^{t,k}."""

    W: Array  # w^0..w^T            (rounds + 1, d)
    local_means: Array  # rounds 1..T  (rounds, d)


class _Descent:
    """A crew of clients that take K exact gradient steps, in float64; remembers the mean of the local iterates."""

    def __init__(self, objective: KnownObjective, *, eta: float, K: int) -> None:
        self.objective, self.eta, self.K = objective, eta, K
        self.local_means: list[Array] = []

    def updates(self, w: Tensor, participants: Sequence[Participant], t: int) -> tuple[Tensor, list[float]]:
        """Δ_c(t) of the whole cohort, which is everyone, all of one weight."""
        start = w.double().numpy()
        U = np.broadcast_to(start, (self.objective.N, 1, len(start)))
        total = np.zeros_like(start)
        for _ in range(self.K):
            total += U.mean((0, 1))
            U = U - self.eta * self.objective.gradients(U)
        self.local_means.append(total / self.K)
        rows = U[[participant.client for participant in participants], 0] - start
        return torch.from_numpy(rows).float(), [1.0] * len(rows)


@dataclass(frozen=True)
class _Client:
    """Client c of the objective; it always trains with its crew."""

    client: int
    crew: _Descent

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Δ_c(t) alone."""
        rows, weights = self.crew.updates(w, [self], t)
        return rows[0], weights[0]


def train(objective: KnownObjective, wire: Route, *, eta: float, K: int, rounds: int, key: Key) -> Path:
    """`desketch.fed.run` on ``objective`` with eta_global = 1, as Algorithm 1 has it."""
    crew, path = _Descent(objective, eta=eta, K=K), []

    def watch(w: Tensor) -> Mapping[str, float]:
        path.append(w.double().numpy().copy())
        return {}

    federation = Federation(
        clients=[_Client(c, crew) for c in range(objective.N)],
        channel=wire.channel(key),
        optimizer=make_optimizer("sgd", eta_global=1.0),
        w0=torch.from_numpy(objective.w0).float(),
        evaluate=watch,
    )
    watch(federation.w0)
    run(federation, rounds=rounds)
    return Path(np.stack(path), np.stack(crew.local_means))


def through_the_wire(wire: Route, vectors: Array, *, rounds: int, key: Key) -> Array:
    """Every row of ``vectors`` (n, d) sent alone, up and broadcast down, in ``rounds`` rounds: (n, rounds, d)."""
    channel, deltas = wire.channel(key), torch.from_numpy(vectors).float()
    clients = range(len(vectors))
    out = np.empty((len(vectors), rounds, wire.d), dtype=np.float32)
    for t in range(1, rounds + 1):
        frames = channel.encode_updates(t, deltas, clients=clients, weights=[1.0] * len(vectors))
        for c in clients:
            broadcast = channel.aggregate(t, {c: frames[c]}).broadcast
            assert broadcast is not None
            out[c, t - 1] = channel.decode_broadcast(t, broadcast).vector.numpy()
    return out
