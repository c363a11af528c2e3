"""Levenberg-Marquardt on |r(x)|² + ρ |C^{-1/2}(x - mean)|² with ρ lowered in stages.

A public covariance C steers the first steps where the landscape is bad (trained networks), fills the directions that
b < m measurements leave free, and at ρ = 1 (whitened noise) the minimiser is the maximum a posteriori estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.prior import GaussianPrior
from desketch.attack.solvers.base import Iterate, Solver
from desketch.attack.solvers.levenberg_marquardt import damped, free_step

__all__ = ["PriorContinuation"]


@dataclass(frozen=True)
class PriorContinuation(Solver):
    """Stages ρ = L_R(x0)/m, then ``decay`` times less each, down to 1 with noise, or to nothing without."""

    prior: GaussianPrior
    decay: float = 0.1
    stages: int = 12
    steps: int = 6
    damping: float = 1e-3
    name = "prior"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk through the stages; the loss yielded is L_R alone."""
        x = x0.clone()
        rho = max(objective.loss(x) / objective.unknowns, 1e-300)
        floor = 1.0 if objective.noisy else 0.0
        for stage in range(self.stages):
            last = stage == self.stages - 1 or rho <= floor
            rho = floor if last else rho
            previous = float("inf")
            for count, iterate in enumerate(self._stage(objective, x, rho)):
                x = iterate.x
                yield Iterate(x, iterate.loss - rho * float(self.prior.whiten(x).square().sum()))
                settled = count >= self.steps or iterate.loss > 0.99 * previous
                if settled and not last:
                    break
                previous = iterate.loss
            if last:
                return
            rho *= self.decay

    def _stage(self, objective: Objective, x: Tensor, rho: float) -> Iterator[Iterate]:
        if rho == 0:
            yield from damped(objective.residual, objective.linearise, x, step=free_step, damping=self.damping)
            return
        root = rho**0.5
        rows = root * self.prior.root_precision()

        def residual(x: Tensor) -> Tensor:
            return torch.cat([objective.residual(x), root * self.prior.whiten(x)])

        def linearise(x: Tensor) -> tuple[Tensor, Tensor]:
            r, J = objective.linearise(x)
            return torch.cat([r, root * self.prior.whiten(x)]), torch.cat([J, rows])

        yield from damped(residual, linearise, x, step=free_step, damping=self.damping)
