"""Adam and L-BFGS (strong Wolfe) on L_R, by torch.optim, with gradients from one backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.solvers.base import Iterate, Solver

__all__ = ["AdamSolver", "Lbfgs"]


@dataclass(frozen=True)
class AdamSolver(Solver):
    """Adam with cosine decay of the step from ``lr`` to zero over ``steps``."""

    lr: float = 0.1
    steps: int = 600
    name = "adam"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk for ``steps`` steps."""
        x = x0.clone()
        optimiser = torch.optim.Adam([x], lr=self.lr)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=self.steps)
        for _ in range(self.steps):
            loss, x.grad = objective.gradient(x)
            yield Iterate(x.clone(), loss)
            optimiser.step()
            decay.step()
        yield Iterate(x.clone(), objective.loss(x))


@dataclass(frozen=True)
class Lbfgs(Solver):
    """L-BFGS with a strong Wolfe line search; ``inner`` iterations between two yields."""

    memory: int = 50
    inner: int = 10
    steps: int = 100
    name = "lbfgs"

    def iterate(self, objective: Objective, x0: Tensor) -> Iterator[Iterate]:
        """Walk; stops when ``inner`` iterations make no progress."""
        x = x0.clone()
        optimiser = torch.optim.LBFGS(
            [x],
            history_size=self.memory,
            max_iter=self.inner,
            line_search_fn="strong_wolfe",
            tolerance_grad=0.0,
            tolerance_change=0.0,
        )

        def closure() -> float:
            loss, x.grad = objective.gradient(x)
            return loss

        loss = objective.loss(x)
        yield Iterate(x.clone(), loss)
        for _ in range(self.steps):
            optimiser.step(closure)  # type: ignore[no-untyped-call]
            previous, loss = loss, objective.loss(x)
            yield Iterate(x.clone(), loss)
            if not loss < previous:
                return
