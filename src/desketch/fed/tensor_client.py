"""Participants whose data are tensors: trained together by an engine, or privately one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.core.on_demand import OnDemand
from desketch.errors import InputError
from desketch.fed.client import Participant
from desketch.fed.engine import Engine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.mechanism import ExampleMechanism, Privacy, StepMechanism
from desketch.sketches import Sketch

__all__ = ["ExampleClient", "TensorClient", "TensorCrew", "tensor_clients"]


@dataclass(frozen=True)
class TensorCrew:
    """An engine and the work that all its clients do."""

    engine: Engine
    work: LocalWork

    def updates(self, w: Tensor, participants: Sequence[TensorClient], t: int) -> tuple[Tensor, list[float]]:
        """The engine's rows, in the participants' order."""
        cohort = [participant.data for participant in participants]
        return self.engine.updates(w, cohort, self.work, t=t), [data.weight for data in cohort]

    def chunks(
        self, w: Tensor, participants: Sequence[TensorClient], t: int
    ) -> Iterator[tuple[Sequence[TensorClient], Tensor, list[float]]]:
        """The same as the engine makes them, each with its participants."""
        cohort = [participant.data for participant in participants]
        for places, rows in self.engine.chunks(w, cohort, self.work, t=t):
            yield [participants[i] for i in places], rows, [cohort[i].weight for i in places]
            del rows  # before the next are made: their memory is used again


@dataclass(frozen=True)
class TensorClient:
    """K steps of gradient descent on (x, y), by the crew's engine."""

    data: ClientData
    crew: TensorCrew

    @property
    def client(self) -> int:
        """The client's id."""
        return self.data.client

    @property
    def weight(self) -> float:
        """The weight of its updates."""
        return self.data.weight

    @property
    def mechanism(self) -> StepMechanism | None:
        """What makes every local step private, if anything does."""
        return self.crew.engine.step

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Δ_c(t), as the crew computes it for one."""
        rows, weights = self.crew.updates(w, [self], t)
        return rows[0], weights[0]


@dataclass(frozen=True)
class ExampleClient:
    """One private step (K = 1) whose sketch is made of clipped sketches of single examples."""

    data: ClientData
    work: LocalWork
    mechanism: ExampleMechanism

    def __post_init__(self) -> None:
        if self.work.steps != 1:
            raise InputError(
                f"sketches of single examples need K = 1 local step, got {self.work.steps}; set local_steps to 1, or "
                "use noise per step"
            )

    @property
    def client(self) -> int:
        """The client's id."""
        return self.data.client

    @property
    def weight(self) -> float:
        """The weight of its updates."""
        return self.data.weight

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Never in the clear: this client only gives sketches away."""
        raise InputError("this client's privacy is that of its sketches; it gives no update without one")

    def sketched_update(self, R: Sketch, w: Tensor, t: int) -> tuple[Tensor, float]:
        """-eta times the private mean of the examples' sketched gradients."""
        s = self.mechanism.sketched_gradient(R, w, self.data.x, self.data.y)
        return torch.mul(s, -self.work.eta), self.data.weight


def tensor_clients(
    data: Sequence[ClientData], engine: Engine, work: LocalWork, *, privacy: Privacy | None = None
) -> Sequence[Participant]:
    """The participants of a run on tensors; with ``privacy.examples`` they give nothing but private sketches.

    Data that are no list are asked for when their client is.
    """
    crew, examples = TensorCrew(engine, work), privacy.examples if privacy else None

    def make(c: int) -> Participant:
        one = data[c]
        if len(one.y) == 0:
            raise InputError(f"client {one.client} has no data; use fewer clients or another partition")
        return TensorClient(one, crew) if examples is None else ExampleClient(one, work, examples)

    made = OnDemand(len(data), make)
    return list(made) if isinstance(data, list | tuple) else made
