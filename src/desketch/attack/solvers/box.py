"""Levenberg-Marquardt inside a box: pictures have saturated pixels, and each is worth half an equation.

With k interior coordinates, generic linear measurements determine a point of the hypercube once b passes about
(m + k)/2 (Donoho, Tanner, "Counting the faces of randomly-projected hypercubes and orthants", 2010): b < m is not
safe.  The damped linear subproblem is solved exactly as a bounded-variable least squares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.solvers.base import Iterate, Solver
from desketch.attack.solvers.levenberg_marquardt import damped

__all__ = ["Box"]


@dataclass(frozen=True)
class Box(Solver):
    """Levenberg-Marquardt with lower <= x <= upper held at every step."""

    lower: float = 0.0
    upper: float = 1.0
    damping: float = 1e-3
    name = "box"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk inside the box until stationary."""
        start = x0.clamp(self.lower, self.upper)
        yield from damped(objective.residual, objective.linearise, start, step=self._step, damping=self.damping)

    def _step(self, x: Tensor, r: Tensor, J: Tensor, damping: float) -> Tensor:
        m = x.numel()
        A = torch.cat([J, damping**0.5 * torch.eye(m, dtype=x.dtype)]).numpy()
        rhs = torch.cat([-r, torch.zeros(m, dtype=x.dtype)]).numpy()
        slack = 1e-12  # lsq_linear wants an interior, and iterates may sit on the boundary
        low, high = (self.lower - x).numpy() - slack, (self.upper - x).numpy() + slack
        solution = lsq_linear(A, rhs, bounds=(low, high), method="bvls").x
        return torch.from_numpy(np.clip(solution, low + slack, high - slack))
