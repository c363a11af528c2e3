"""The client's half of a round: K local steps from w, then one frame.

    u^{t,k} = u^{t,k-1} - eta_local ∇f_c(u^{t,k-1}),  k = 1..K;      Δw_c(t) = u^{t,K} - w;      send enc_t(Δw_c(t))

`client_round` is pure: the in-process engine, Flower and the decentralised protocols drive the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.fed.channel import Channel, SketchChannel
from desketch.fed.mechanism import Privacy
from desketch.fed.model import FlatModel

__all__ = ["ClientData", "LocalWork", "Visit", "batch_indices", "client_round", "local_update"]


Visit = Callable[[Tensor, float], None]  # a local iterate, and its client's weight


@dataclass(frozen=True)
class ClientData:
    """A client's id, its own examples, and the weight of its update in the mean: how many examples, unless given."""

    client: int
    x: Tensor
    y: Tensor
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not self.weight:
            object.__setattr__(self, "weight", float(len(self.y)))


@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """What a client does between two broadcasts; ``batch=None`` takes the full gradient of its data."""

    steps: int = 20
    eta: float = 0.1
    batch: int | None = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.eta > 0 or (self.batch is not None and self.batch < 1):
            raise InputError(f"local work needs steps >= 1, eta > 0 and batch >= 1 or None, got {self}")


def batch_indices(work: LocalWork, *, t: int, client: int, examples: int) -> Tensor:
    """The (K, B) examples of a client's local steps: shuffled epochs, a stream of its own for each (seed, client, t).

    So nobody's batches depend on who else takes part, and a resumed run draws what the interrupted one would have.
    """
    if work.batch is None:
        return torch.arange(examples).expand(work.steps, examples)
    B = min(work.batch, examples)
    rng = np.random.Generator(np.random.Philox(key=[work.seed, client << 32 | t]))
    epochs = -(-work.steps * B // examples)
    order = np.concatenate([rng.permutation(examples) for _ in range(epochs)])
    return torch.from_numpy(order[: work.steps * B].reshape(work.steps, B))


def local_update(
    model: FlatModel,
    w: Tensor,
    data: ClientData,
    work: LocalWork,
    *,
    t: int,
    privacy: Privacy | None = None,
    visit: Visit | None = None,
) -> Tensor:
    """Δw_c(t): the change that K local steps make to w; ``visit`` is shown u^{t,k} for every k < K."""
    u = w.clone()
    if privacy and privacy.step:
        for _ in range(work.steps):
            u.sub_(privacy.step.gradient(u, data.x, data.y), alpha=work.eta)
        return u.sub_(w)
    with torch.random.fork_rng(enabled=model.draws_noise):
        if model.draws_noise:
            torch.manual_seed(hash((work.seed, data.client, t)))
        for index in batch_indices(work, t=t, client=data.client, examples=len(data.y)):
            if visit:
                visit(u, data.weight)
            u.sub_(model.gradient(u, data.x[index], data.y[index]), alpha=work.eta)
    return u.sub_(w)


def client_round(
    model: FlatModel,
    w: Tensor,
    data: ClientData,
    work: LocalWork,
    channel: Channel,
    *,
    t: int,
    privacy: Privacy | None = None,
) -> bytes:
    """Round t of one client whose replica is at w: the frame to send."""
    if privacy and privacy.examples:
        return private_sketch_frame(w, data, work, channel, t=t, privacy=privacy)
    delta = local_update(model, w, data, work, t=t, privacy=privacy)
    if not torch.linalg.vector_norm(delta).isfinite():
        raise InputError(
            f"client {data.client}: the update of round {t} is not finite; lower eta_local (now {work.eta})"
        )
    return channel.encode_updates(t, delta[None], clients=[data.client], weights=[data.weight])[0]


def private_sketch_frame(
    w: Tensor, data: ClientData, work: LocalWork, channel: Channel, *, t: int, privacy: Privacy
) -> bytes:
    """The frame of a client whose sketch is made of clipped per-example sketches (K = 1)."""
    if not isinstance(channel, SketchChannel) or work.steps != 1 or privacy.examples is None:
        raise InputError(
            f"sketches of single examples need a sketch channel and K = 1, got {channel.name} and K = {work.steps}; "
            "set local_steps to 1 or use noise per step"
        )
    s = privacy.examples.sketched_gradient(channel.sketch_at(t), w, data.x, data.y)
    return channel.encode_sketches(t, (-work.eta * s)[None], clients=[data.client], weights=[data.weight])[0]
