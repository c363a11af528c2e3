"""The outer optimiser: Nesterov's momentum on mean updates, the same bits on every rank.

    M = m M + u,        theta += lr (u + m M)

as torch.optim.SGD(nesterov=True) on the gradient -u; plain steps, without an M, at m = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from desketch.errors import ConfigError

__all__ = ["Nesterov"]


class Nesterov:
    """State is M alone, one vector as long as theta."""

    def __init__(self, *, lr: float, momentum: float) -> None:
        if not lr > 0:
            raise ConfigError(f"outer_lr must be above 0, got {lr}")
        if not 0 <= momentum < 1:
            raise ConfigError(f"outer_momentum must be in [0, 1), got {momentum}")
        self.lr, self.momentum = lr, momentum
        self.M: Tensor | None = None

    def step(self, theta: Tensor, u: Tensor) -> None:
        """Move theta in place."""
        if self.momentum:
            self.M = u.clone() if self.M is None else self.M.mul_(self.momentum).add_(u)
            theta.add_(self.M, alpha=self.lr * self.momentum)
        theta.add_(u, alpha=self.lr)

    def state_dict(self) -> dict[str, Any]:
        """M, once there is one."""
        return {} if self.M is None else {"M": self.M}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.M = state["M"].clone() if "M" in state else None
