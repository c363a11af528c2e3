"""The private releases of a run: where it clips, where it adds noise, and what it promises to whom.

==========================  ============================================================================================
`NoisySteps`                Algorithm 2: every local gradient is a Poisson batch of clipped per-example gradients plus
                            noise in R^d; the sketch that follows is post-processing
`SketchClipExamples`        K = 1: every example's *sketched* gradient is clipped, noise in R^b, at the client
`SketchClipClients`         every client's *sketched* update is clipped, noise in R^b, once per round, at the server
`SketchClipClientsShared`   the same, with the noise shared out over the clients
==========================  ============================================================================================

Clipping the sketch makes the sensitivity exactly C for every family and every drawn R: R is public, so ``clip(R g)`` is
just another bounded function of one unit.  Noise of standard deviation z C in R^b becomes, after de-sketching, noise of
energy ``E|R^T n|^2 = z^2 C^2 d``: that of unsketched DP.  Noise *before* the sketch becomes ``(1 + alpha) z^2 C^2 d``,
i.e. d/b times more.

Being only b numbers, clipped sketches are rounded to a `Grid`, added as integers and hidden by discrete Gaussian noise:
these promises hold in floating point.  Noise per step is a float Gaussian, whose promise holds in real arithmetic.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.privacy.clip import check_clip, clip_rows
from desketch.privacy.events import Event, Gaussian, LocalSteps, PoissonSampled, check_positive
from desketch.privacy.grid import Grid
from desketch.privacy.noise import Entropy, OsEntropy
from desketch.privacy.per_example import PerExample
from desketch.privacy.sampling import poisson_sample

__all__ = ["Mechanism", "NoisySteps", "SketchClipClients", "SketchClipClientsShared", "SketchClipExamples"]

_CHUNK_FLOATS = 1 << 23  # per-example gradients held at once


class Sketcher(Protocol):
    """What is needed of a drawn R."""

    @property
    def b(self) -> int:
        """Rows of R."""

    def sketch(self, g: Tensor, /) -> Tensor:
        """``(..., d) -> (..., b)``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism(ABC):
    """A clip, a noise multiplier and a source of entropy; subclasses say what is clipped and who sees the result."""

    clip: float
    noise_multiplier: float
    entropy: Entropy = field(default_factory=OsEntropy)

    name = "mechanism"
    unit = "unit"
    adjacency = "add-remove"
    sampler = "sampler"
    observer = "observer"
    noise = "Gaussian"

    def __post_init__(self) -> None:
        check_clip(self.clip, torch.float32)
        check_positive("noise_multiplier", self.noise_multiplier)

    @property
    def claim(self) -> dict[str, str]:
        """What is promised to whom, in words, for reports."""
        source = self.entropy.not_private or "operating system entropy"
        return {
            "mechanism": self.name,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "sampler": self.sampler,
            "observer": self.observer,
            "noise": f"{self.noise}, {self.noise_multiplier:.6g} x clip {self.clip:g}, from {source}",
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.claim.items())})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _OnGrid(Mechanism):
    """Integer sums of rounded sketches under discrete Gaussian noise."""

    noise = "discrete Gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.grid

    @cached_property
    def grid(self) -> Grid:
        """Where sketches and noise lie."""
        return Grid.build(self.clip, self.noise_multiplier)

    def _noise(self, *shape: int) -> Tensor:
        """Whole steps of noise."""
        return self.entropy.discrete_normal(*shape, s=self.grid.noise)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _ExampleLevel(Mechanism):
    """Poisson batches of expected size ``batch`` from each client's own examples; noise at the client."""

    batch: int
    per_example: PerExample

    unit = "example"
    sampler = "Poisson over each client's examples"
    observer = "everybody else, the server included: all messages and all models"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise InputError(f"a batch holds at least one example, got {self.batch}")

    def event(self, *, examples: int, steps: int) -> Event:
        """What a client with ``examples`` examples releases in a round of ``steps`` local steps."""
        return LocalSteps(examples, self.batch, steps, self.noise_multiplier)

    def _sample(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.batch > len(y):
            raise InputError(f"a batch of {self.batch} was asked of a client with {len(y)} examples; lower the batch")
        index = poisson_sample(len(y), self.batch / len(y), self.entropy).to(y.device)
        return x[index], y[index]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisySteps(_ExampleLevel):
    """Algorithm 2: ``(sum_i clip(g_i) + N(0, z^2 C^2 I_d)) / B`` at every local step, B the public expected size."""

    name = "per-step"

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return one private gradient of a client whose whole data is (x, y)."""
        total = self.per_example.clipped_sum(w, *self._sample(x, y), clip=self.clip)
        return ((total + self._noise(w.numel()).to(w.device)) / self.batch).to(w.dtype)

    def _noise(self, n: int) -> Tensor:
        return self.entropy.normal(n, std=self.noise_multiplier * self.clip, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchClipExamples(_OnGrid, _ExampleLevel):
    """K = 1: ``(sum_i clip(R g_i) + N(0, z^2 C^2 I_b)) / B``."""

    name = "sketch-clip, example level"

    def sketched_gradient(self, R: Sketcher, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the private mean sketch of a client whose whole data is (x, y)."""
        x, y = self._sample(x, y)
        size = max(1, _CHUNK_FLOATS // w.numel())
        total = self._noise(R.b).to(w.device)
        for xs, ys in zip(torch.split(x, size), torch.split(y, size), strict=True):
            gradients = self.per_example.gradients(w, xs, ys)
            total += self.grid.round(R.sketch(gradients)).sum(0)
        return (self.grid.values(total) / self.batch).to(w.dtype)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchClipClients(_OnGrid):
    """``(sum_c clip(R delta_c) + N(0, z^2 C^2 I_b)) / (q N)`` once per round, clients Poisson-sampled at rate q."""

    sampling_rate: float
    clients: int

    name = "sketch-clip, client level"
    unit = "client"
    sampler = "Poisson over the clients"
    observer = "whoever sees broadcasts and models; the server is trusted with single messages"

    def event(self) -> Event:
        """What one round releases."""
        return PoissonSampled(self.sampling_rate, Gaussian(self.noise_multiplier))

    def sample(self, clients: int) -> list[int]:
        """Draw the cohort of a round from OS entropy; an empty one is a round like any other."""
        if clients != self.clients:
            raise InputError(f"this mechanism was set up for {self.clients} clients, got {clients}")
        return [int(client) for client in poisson_sample(clients, self.sampling_rate, self.entropy)]

    def guard(self, sketches: Tensor) -> Tensor:
        """Clip the rows at the clients, so that an honest client's message loses nothing more at the server."""
        return clip_rows(sketches, self.clip)

    def average(self, sketches: Tensor) -> Tensor:
        """Clip what was decoded (rounding may have lengthened it, a client may lie), sum, add noise, divide by q N."""
        return self._mean(self.grid.round(sketches).sum(0) + self._noise(sketches.shape[1])).to(sketches.dtype)

    def _mean(self, total: Tensor) -> Tensor:
        return self.grid.values(total) / (self.sampling_rate * self.clients)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchClipClientsShared(SketchClipClients):
    """The noise is shared out: each client adds 1/m of its variance, m = ceil(q N), before its message leaves.

    The server tops up what too small a cohort, or a dropout, leaves missing, so the sum never carries less than z C.
    Messages must cross the wire unrounded (f32, which holds whole steps below 2^24 exactly): a sum of rounded messages
    is not a function of the noisy sum.  A sum of discrete Gaussians is discrete Gaussian but for less than 1e-130.
    """

    name = "sketch-clip, client level, shared noise"
    observer = (
        "whoever sees sums only (a server behind secure aggregation), broadcasts and models; clients are honest. "
        "A server that sees single messages sees them under 1/m of the noise variance"
    )

    @property
    def shares(self) -> int:
        """m, the number of shares that make the whole noise."""
        return math.ceil(self.sampling_rate * self.clients)

    @cached_property
    def grid(self) -> Grid:
        """Where sketches and shares of noise lie: coarse enough for a float32 message."""
        return Grid.build(self.clip, self.noise_multiplier, shares=self.shares, float32=True)

    def guard(self, sketches: Tensor) -> Tensor:
        """Clip the rows, then add each client's share of the noise."""
        return self.grid.values(self.grid.round(sketches) + self._noise(*sketches.shape)).to(sketches.dtype)

    def average(self, sketches: Tensor) -> Tensor:
        """Sum what arrived, add the missing shares, divide by q N."""
        total = self.grid.steps(sketches).sum(0)
        for s in self.grid.top_up(self.shares - len(sketches)):
            total += self.entropy.discrete_normal(sketches.shape[1], s=s)
        return self._mean(total).to(sketches.dtype)
