"""L_R(x) = |R ∇_w F(w, x) - R g|², the attacker's objective in the sketch domain (Section "Attack Sketched Gradients").

The attacker knows w, R and s = R g (plus noise), and looks for x.  Rounds on the same data stack: the residual is
the concatenation of the whitened ``R_t G_t(x) - s_t``.  Everything stays in the sketch domain.  Attacking the
de-sketched Rᵀ R g instead hides the data behind the null space of R and makes any attack look defeated: a false
negative.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from desketch.attack.noise import ObservedNoise, Whitening, whiten
from desketch.attack.update import LocalUpdate
from desketch.errors import InputError
from desketch.sketches import Sketch

__all__ = ["Objective", "Observation"]


@dataclass(frozen=True)
class Observation:
    """One captured message: the weights it was computed at, the operator (None: the raw update), its numbers."""

    w: Tensor
    R: Sketch | None
    s: Tensor
    noise: ObservedNoise = field(default_factory=ObservedNoise)

    def __post_init__(self) -> None:
        expected = self.w.numel() if self.R is None else self.R.b
        if self.s.numel() != expected:
            raise InputError(f"the message has {self.s.numel()} numbers, the sketch gives {expected}; check the key")
        if self.R is not None and self.R.d != self.w.numel():
            raise InputError(f"the sketch expects d={self.R.d} weights, the checkpoint has {self.w.numel()}")
        object.__setattr__(self, "w", self.w.detach().double())
        object.__setattr__(self, "s", self.s.detach().double())

    def sketch(self, g: Tensor) -> Tensor:
        """R g, for one update or a batch of them."""
        return g if self.R is None else self.R.sketch(g)

    def desketch(self, s: Tensor) -> Tensor:
        """Rᵀ s."""
        return s if self.R is None else self.R.desketch(s)


@dataclass(frozen=True)
class Objective:
    """The stacked whitened residual r(x), its Jacobian, its squared norm L_R and the gradient of L_R."""

    update: LocalUpdate
    observations: Sequence[Observation]
    y: Tensor
    _whitenings: tuple[Whitening, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.observations:
            raise InputError("an objective needs at least one observed message")
        if self.y.shape[0] != self.update.examples:
            raise InputError(f"got {self.y.shape[0]} targets for {self.update.examples} private examples")
        scale = float(sum(o.s.square().sum() for o in self.observations)) ** 0.5 or 1.0
        whitenings = tuple(whiten(o.noise, o.R, o.s.numel(), scale=scale) for o in self.observations)
        object.__setattr__(self, "_whitenings", whitenings)

    @property
    def unknowns(self) -> int:
        """m: input numbers looked for."""
        return self.update.unknowns

    @property
    def measurements(self) -> int:
        """How many numbers were observed, over all rounds."""
        return sum(o.s.numel() for o in self.observations)

    @property
    def noisy(self) -> bool:
        """Whether losses are in units of the noise (else relative to |s|²)."""
        return any(bool(o.noise) for o in self.observations)

    def with_labels(self, y: Tensor) -> Objective:
        """The same observations under another guess of the targets."""
        twin = copy.copy(self)  # keeps the whitening, which does not depend on y
        object.__setattr__(twin, "y", y)
        return twin

    def residual(self, x: Tensor) -> Tensor:
        """r(x): (M,)."""
        return torch.cat([self._residual(o, W, self.update(o.w, x, self.y)) for o, W in self._rounds()])

    def linearise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """r(x) and its Jacobian J = whitened R Φᵀ: (M,), (M, m).  R is applied to the m columns as one batch."""
        residuals, blocks = [], []
        for o, W in self._rounds():
            g, Phi = self.update.jacobian(o.w, x, self.y)
            residuals.append(self._residual(o, W, g))
            blocks.append(W(o.sketch(Phi)).T)
        return torch.cat(residuals), torch.cat(blocks)

    def loss(self, x: Tensor) -> float:
        """L_R(x)."""
        return float(self.residual(x).square().sum())

    def gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """L_R(x) and ∇L_R(x) = 2 Φ Rᵀ r, by one backward pass."""
        loss, total = 0.0, torch.zeros_like(x)
        for o, W in self._rounds():
            g, pull = self.update.pull(o.w, x, self.y)
            r = self._residual(o, W, g)
            loss += float(r.square().sum())
            total += 2 * pull(o.desketch(W.transpose(r, o.s.numel())))
        return loss, total

    def _rounds(self) -> zip[tuple[Observation, Whitening]]:
        return zip(self.observations, self._whitenings, strict=True)

    @staticmethod
    def _residual(o: Observation, W: Whitening, g: Tensor) -> Tensor:
        return W(o.sketch(g) - o.s)
