"""The outer optimiser: Nesterov's momentum on mean updates, the same bits on every rank.

    M = m M + u,        theta += lr (u + m M)

as torch.optim.SGD(nesterov=True) on the gradient -u; plain steps, without an M, at m = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from desketch.errors import ConfigError

__all__ = ["Nesterov"]

_PIECE = 1 << 16  # numbers that stay in the cache from one operation to the next


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
        if self.momentum and self.M is None:
            self.M = torch.zeros_like(theta)
        for start in range(0, len(theta), _PIECE):
            piece = slice(start, start + _PIECE)
            if self.M is not None:
                M = self.M[piece].mul_(self.momentum).add_(u[piece])
                theta[piece].add_(M, alpha=self.lr * self.momentum)
            theta[piece].add_(u[piece], alpha=self.lr)

    def state_dict(self) -> dict[str, Any]:
        """M, once there is one."""
        return {} if self.M is None else {"M": self.M}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.M = state["M"].clone() if "M" in state else None
