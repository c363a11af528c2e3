"""Gradient descent on L_R with the step that the Polyak-Łojasiewicz argument allows.

The paper's step (θ₁² - a θ₂^{2-2p}) / (2 b θ₂²) is negative for every F: a >= 2 θ₂ >= 2 θ₁ makes its condition
unsatisfiable (`desketch.attack.landscape`).  The correct one is η = 1/H with H = 2 σ_max(R Φ)², for which near a
solution L_R falls by 1 - μ/H a step, μ = 2 σ_min(R Φ)².  H is the curvature of the linearisation at the current
point; where the model bends more, H is doubled until the step descends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.solvers.base import Iterate, Solver

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent(Solver):
    """x <- x - ∇L_R(x) / H; H is refreshed every ``refresh`` steps from the singular values of R Φ."""

    refresh: int = 25
    backtracks: int = 40
    name = "gd"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk; stops when no step length descends."""
        x, t, H = x0.clone(), 0, 1.0
        loss, g = objective.gradient(x)
        yield Iterate(x, loss)
        while True:
            if t % self.refresh == 0:
                H = 2 * float(torch.linalg.matrix_norm(objective.linearise(x)[1], ord=2)) ** 2
            for _ in range(self.backtracks):
                trial, trial_g = objective.gradient(x - g / H)
                if trial < loss:
                    break
                H *= 2
            else:
                return
            x, loss, g, t = x - g / H, trial, trial_g, t + 1
            yield Iterate(x, loss)
