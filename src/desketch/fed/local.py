"""Local work on tensors: K steps of gradient descent on a client's own examples.

u^{t,k} = u^{t,k-1} - eta_local ∇f_c(u^{t,k-1}),  k = 1..K;      Δ_c(t) = u^{t,K} - w
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.core.flat import FlatModel
from desketch.errors import InputError
from desketch.fed.mechanism import StepMechanism

__all__ = ["ClientData", "LocalWork", "Visit", "batch_indices", "cohort_indices", "local_update", "stream"]

Visit = Callable[[Tensor, float], None]  # a local iterate, and its client's weight


@dataclass(frozen=True, repr=False)
class ClientData:
    """A client's id, its own examples, and the weight of its update in the mean: how many examples, unless given."""

    client: int
    x: Tensor
    y: Tensor
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not self.weight:
            object.__setattr__(self, "weight", float(len(self.y)))

    def __repr__(self) -> str:
        """Sizes only: a log must not hold anybody's data."""
        return f"ClientData(client={self.client}, examples={len(self.y)}, weight={self.weight:g})"


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


def stream(seed: int, *, t: int, client: int) -> np.random.Generator:
    """The random numbers of one client's round: shuffles and dropout, never privacy.

    So nobody's batches depend on who else takes part, and a resumed run draws what the interrupted one would have.
    """
    return np.random.Generator(np.random.Philox(key=[seed, _place(t, client)]))


def _place(t: int, client: int) -> int:
    return client << 32 | t


def batch_indices(work: LocalWork, *, t: int, client: int, examples: int) -> Tensor:
    """The (K, B) examples of a client's local steps: shuffled epochs, from the client's own stream."""
    (index,) = cohort_indices(work, t=t, clients=[client], examples=[examples])
    return index


def cohort_indices(work: LocalWork, *, t: int, clients: Sequence[int], examples: Sequence[int]) -> list[Tensor]:
    """`batch_indices` of each client; one generator takes the key of one stream after the other."""
    if work.batch is None:
        return [torch.arange(n).expand(work.steps, n) for n in examples]
    rng = stream(work.seed, t=t, client=0)
    fresh = rng.bit_generator.state
    key: npt.NDArray[np.uint64] = fresh["state"]["key"]
    indices = []
    for client, n in zip(clients, examples, strict=True):
        key[1] = _place(t, client)
        rng.bit_generator.state = fresh
        B = min(work.batch, n)
        order = np.concatenate([rng.permutation(n) for _ in range(-(-work.steps * B // n))])
        indices.append(torch.from_numpy(order[: work.steps * B].reshape(work.steps, B)))
    return indices


def local_update(
    model: FlatModel,
    w: Tensor,
    data: ClientData,
    work: LocalWork,
    *,
    t: int,
    step: StepMechanism | None = None,
    visit: Visit | None = None,
) -> Tensor:
    """Δ_c(t): the change that K local steps make to w.

    ``step`` makes every one of them private; ``visit`` is shown u^{t,k} for every k < K.
    """
    u = w.clone()
    if step is not None:
        for _ in range(work.steps):
            u.sub_(step.gradient(u, data.x, data.y), alpha=work.eta)
        return u.sub_(w)
    with torch.random.fork_rng(enabled=model.draws_noise):
        if model.draws_noise:
            torch.manual_seed(int(stream(work.seed, t=t, client=data.client).integers(2**63)))
        for index in batch_indices(work, t=t, client=data.client, examples=len(data.y)):
            if visit:
                visit(u, data.weight)
            u.sub_(model.gradient(u, data.x[index], data.y[index]), alpha=work.eta)
    return u.sub_(w)
