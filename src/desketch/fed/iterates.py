"""Averages of the iterates: the model that is evaluated.

The mean of w^1..w^t, or of the last n of them, can be formed by every replica, since it holds every w^t.  The convex
theorem with K local steps bounds f at another mean, over the clients' local iterates too,

    w-bar^T = 1/(KT) Σ_{t=1..T} Σ_{k=0..K-1} ū^{t,k},      ū^{t,k} = Σ_c p_c u_c^{t,k},

which begins with u^{1,0} = w^0 and needs what only the clients hold: an engine has to show it (`LocalIterates.visit`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from desketch.errors import InputError

__all__ = ["Average", "LastRounds", "LocalIterates", "WholeRun", "make_average"]


class Average:
    """No averaging: the current w."""

    def add(self, w: Tensor) -> None:
        """Take in w^t."""

    def of(self, w: Tensor) -> Tensor:
        """The model to use when the replica is at w."""
        return w

    def state_dict(self) -> dict[str, Any]:
        """State to checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""


class WholeRun(Average):
    """(1/t) Σ_{i=1..t} w^i."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._n = 0

    def add(self, w: Tensor) -> None:
        """Add w^t to the sum."""
        self._sum = w.double() if self._sum is None else self._sum.add_(w)
        self._n += 1

    def of(self, w: Tensor) -> Tensor:
        """The mean of what was taken in."""
        return w if self._sum is None else (self._sum / self._n).to(w.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Sum and count."""
        return {"sum": self._sum, "n": self._n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._sum, self._n = state["sum"], int(state["n"])


class LocalIterates(Average):
    """The convex theorem's w-bar; rounds in which nobody took a step do not count."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._n = 0
        self._round: Tensor | None = None
        self._weight = 0.0

    def visit(self, u: Tensor, weight: float) -> None:
        """Take in u_c^{t,k} of a client with that weight, unless it has diverged."""
        if not torch.linalg.vector_norm(u).isfinite():
            return
        self._round = u.double() * weight if self._round is None else self._round.add_(u, alpha=weight)
        self._weight += weight

    def add(self, w: Tensor) -> None:
        """Close round t: every round counts alike."""
        if self._round is None:
            return
        mean = self._round / self._weight
        self._sum = mean if self._sum is None else self._sum.add_(mean)
        self._n += 1
        self._round, self._weight = None, 0.0

    def of(self, w: Tensor) -> Tensor:
        """w-bar."""
        return w if self._sum is None else (self._sum / self._n).to(w.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Sum and count of the closed rounds."""
        return {"sum": self._sum, "n": self._n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._sum, self._n = state["sum"], int(state["n"])


class LastRounds(Average):
    """The mean of the last n iterates."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise InputError(f"an average takes the last n >= 1 rounds, got {n}")
        self._last: deque[Tensor] = deque(maxlen=n)

    def add(self, w: Tensor) -> None:
        """Remember w^t, forget w^{t-n}."""
        self._last.append(w.clone())

    def of(self, w: Tensor) -> Tensor:
        """The mean of what is remembered."""
        if len(self._last) < 2:
            return w
        total = self._last[0].clone()
        for old in list(self._last)[1:]:
            total.add_(old)
        return total.div_(len(self._last))

    def state_dict(self) -> dict[str, Any]:
        """The remembered iterates."""
        return {"last": list(self._last)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._last.clear()
        self._last.extend(state["last"])


def make_average(last: int | str = 1) -> Average:
    """``1`` for none, ``n`` for the last n rounds, ``"all"`` for w^1..w^t, ``"local"`` for the theorem's w-bar."""
    if last == "all":
        return WholeRun()
    if last == "local":
        return LocalIterates()
    return LastRounds(int(last)) if int(last) > 1 else Average()
