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
from desketch.integrations.torch.methods.base import Pieces

__all__ = ["Nesterov"]

_CACHED = 1 << 16  # numbers that stay in the cache from one operation to the next


class Nesterov:
    """State is M alone, one vector as long as theta."""

    def __init__(self, *, lr: float, momentum: float) -> None:
        if not lr > 0:
            raise ConfigError(f"outer_lr must be above 0, got {lr}")
        if not 0 <= momentum < 1:
            raise ConfigError(f"outer_momentum must be in [0, 1), got {momentum}")
        self.lr, self.momentum = lr, momentum
        self.M: Tensor | None = None

    def step(self, theta: Tensor, pieces: Pieces) -> None:
        """Move theta in place, by the pieces of u."""
        if self.momentum and self.M is None:
            self.M = torch.zeros_like(theta)
        for place, u in pieces:
            for at, part in zip(range(place.start, place.stop, _CACHED), torch.split(u, _CACHED), strict=True):
                cut = slice(at, at + len(part))
                if self.M is not None:
                    M = self.M[cut].mul_(self.momentum).add_(part)
                    theta[cut].add_(M, alpha=self.lr * self.momentum)
                theta[cut].add_(part, alpha=self.lr)

    def expected(self, theta: Tensor, u: Tensor) -> Tensor:
        """Where a step by u would lead; nothing moves."""
        m = self.momentum
        w = torch.add(theta, u, alpha=self.lr * (1 + m))
        return w if self.M is None else w.add_(self.M, alpha=self.lr * m * m)

    def state_dict(self) -> dict[str, Any]:
        """M, once there is one."""
        return {} if self.M is None else {"M": self.M}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.M = state["M"].clone() if "M" in state else None
