"""Scenario: who sends what to whom, simulated, so that an attack on it can be judged against the truth.

Private examples are drawn from data the attacker never sees; the public ones (same distribution) give the prior.  Over
several rounds the weights move as training moves them: by a gradient step on public data each round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.prior import GaussianPrior
from desketch.attack.update import LocalUpdate
from desketch.attack.wiretap import codec_noise, through_the_wire
from desketch.errors import InputError
from desketch.keys import Key
from desketch.sketches import draw

__all__ = ["Data", "Scenario", "Target"]


@dataclass(frozen=True)
class Data:
    """Private and public examples (n, ...) with labels; inputs are float64."""

    private_x: Tensor
    private_y: Tensor
    public_x: Tensor
    public_y: Tensor
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.private_x.shape[1:])


@dataclass(frozen=True)
class Target:
    """One simulated leak: the objective as the attacker has it, and the truth as only the auditor has it."""

    objective: Objective
    truth: Tensor
    gradient_norm: float


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A configuration to audit.

    Args:
        data: private and public examples.
        build: seed -> model with its weights.
        family: sketch family, or "none".
        b: numbers in a message; None sends the raw update, whatever the family.
        rounds: messages about the same private examples, each with a fresh R_t.
        batch: examples of a client.
        clients: clients averaged (as by secure aggregation) before the attacker sees the sum.
        K: local steps.
        eta_local: their size; None sends gradients.
        clip: per-example clipping norm, or None.
        noise: of the privacy mechanism.
        codec: of the wire; None observes exact numbers.
        labels_known: whether the attacker is told the labels.
        key: public key of the sketches.

    """

    data: Data
    build: Callable[[int], nn.Module]
    family: str = "srht"
    b: int | None = None
    rounds: int = 1
    batch: int = 1
    clients: int = 1
    K: int = 1
    eta_local: float | None = None
    clip: float | None = None
    noise: ObservedNoise = field(default_factory=ObservedNoise)
    codec: str | None = "f32"
    labels_known: bool = False
    key: Key = field(default_factory=lambda: Key(0))

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}")
        if self.family == "none" and self.b is not None:
            raise InputError(f'family "none" sends the raw update of d numbers, got b={self.b}; leave b out')
        if self.batch * self.clients > len(self.data.private_y):
            raise InputError(
                f"{self.batch} x {self.clients} private examples were asked of {len(self.data.private_y)}; "
                "lower --batch or --clients"
            )

    def prior(self) -> GaussianPrior:
        """Public knowledge of all the unknowns together."""
        return GaussianPrior.fit(self.data.public_x).repeat(self.batch * self.clients)

    def update(self, seed: int) -> LocalUpdate:
        """G for the model of this seed."""
        return LocalUpdate(
            self.build(seed),
            self.data.shape,
            batch=self.batch,
            clients=self.clients,
            K=self.K,
            eta_local=self.eta_local,
            clip=self.clip,
        )

    def target(self, seed: int) -> Target:
        """Simulate the leak number ``seed``: other weights, other private examples, other R, other noise."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(self.data.private_y), generator=generator)[: self.batch * self.clients]
        x, y = self.data.private_x[rows].reshape(-1).double(), self.data.private_y[rows]
        update = self.update(seed)
        seen, w = [], update.weights()
        for t in range(self.rounds):
            g = update(w, x, y)
            seen.append(self._observe(w, g, self.key.fold_in("audit", seed, "round", t), generator))
            w = w - self._public_step(update, w, generator) if t + 1 < self.rounds else w
        return Target(Objective(update, seen, y), x, float(g.norm()))

    def with_noise(self, noise: ObservedNoise) -> Scenario:
        """The same under other noise."""
        return replace(self, noise=noise)

    def _observe(self, w: Tensor, g: Tensor, key: Key, generator: torch.Generator) -> Observation:
        if self.b is None:
            R, d, family = None, g.numel(), "none"
        else:
            R, d, family = draw(self.family, d=g.numel(), b=self.b, key=key), g.numel(), self.family
        s = g if R is None else R.sketch(g)
        s = s + self.noise.sample(R, s.numel(), generator) if self.noise else s
        if self.codec is None:
            return Observation(w, R, s, self.noise)
        error = codec_noise(s, family=family, d=d, codec=self.codec)
        seen = through_the_wire(s, family=family, d=d, codec=self.codec, key=key)
        return Observation(w, R, seen, replace(self.noise, after=(self.noise.after**2 + error**2) ** 0.5))

    def _public_step(self, update: LocalUpdate, w: Tensor, generator: torch.Generator) -> Tensor:
        """One round of everybody else's training: a gradient step on public examples."""
        rows = torch.randperm(len(self.data.public_y), generator=generator)[:64]
        step = replace(update, batch=len(rows), clients=1, K=1, eta_local=None, schedule=None, clip=None)
        g = step(w, self.data.public_x[rows].reshape(-1).double(), self.data.public_y[rows])
        return 0.1 * g
