"""Levenberg-Marquardt on r(x): the default attack, quadratically convergent where R Φ has full column rank.

A step solves min_h |r + J h|² + λ |h|²; λ follows Nielsen's gain-ratio rule (Madsen, Nielsen, Tingleff, "Methods for
non-linear least squares problems", 2004, section 3.2).  `damped` is the walk shared by the three variants: plain,
with a prior (`prior_continuation`) and inside a box (`box`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.solvers.base import Iterate, Solver

__all__ = ["LevenbergMarquardt", "damped", "free_step"]

Residual = Callable[[Tensor], Tensor]
Linearise = Callable[[Tensor], tuple[Tensor, Tensor]]
Subproblem = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # (x, r, J, λ) -> h

_HUGE = 1e18  # relative damping at which no step is left to try


def free_step(x: Tensor, r: Tensor, J: Tensor, damping: float) -> Tensor:
    """The minimiser h of |r + J h|² + λ|h|², from whichever of the two normal systems is smaller."""
    if J.shape[0] < J.shape[1]:
        gram = J @ J.T
        gram.diagonal().add_(damping)
        return -J.T @ torch.cholesky_solve(r[:, None], _cholesky(gram))[:, 0]
    gram = J.T @ J
    gram.diagonal().add_(damping)
    return -torch.cholesky_solve((J.T @ r)[:, None], _cholesky(gram))[:, 0]


def damped(
    residual: Residual, linearise: Linearise, x0: Tensor, *, step: Subproblem, damping: float
) -> Iterator[Iterate]:
    """Yield (x, |r(x)|²) after every accepted step; stop when steps no longer change x or the loss."""
    x = x0.clone()
    r, J = linearise(x)
    loss, growth = float(r @ r), 2.0
    scale = max(float(J.square().sum(0).max()), 1e-300)
    lam = damping * scale
    yield Iterate(x, loss)
    while lam < _HUGE * scale:
        h = step(x, r, J, lam)
        if float(h.norm()) <= 1e-14 * (1 + float(x.norm())):
            return
        r_new = residual(x + h)
        new = float(r_new @ r_new)
        predicted = loss - float((r + J @ h).square().sum())
        gain = min((loss - new) / max(predicted, 1e-300), 2.0)
        if not new < loss:
            lam, growth = lam * growth, 2 * growth
            continue
        stalled = loss - new <= 1e-13 * loss
        x, loss = x + h, new
        yield Iterate(x, loss)
        if stalled:
            return
        lam, growth = lam * max(1 / 10, 1 - (2 * gain - 1) ** 3), 2.0
        r, J = linearise(x)


@dataclass(frozen=True)
class LevenbergMarquardt(Solver):
    """Plain Levenberg-Marquardt; ``damping`` is the first λ relative to the largest squared column of J."""

    damping: float = 1e-3
    name = "lm"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk until stationary."""
        yield from damped(objective.residual, objective.linearise, x0, step=free_step, damping=self.damping)


def _cholesky(gram: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(gram)
    if int(info) == 0:
        return factor
    jitter = 1e-14 * float(gram.diagonal().max())
    return torch.linalg.cholesky(gram + jitter * torch.eye(gram.shape[0], dtype=gram.dtype))
