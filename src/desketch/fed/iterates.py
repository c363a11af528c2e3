"""Averages of the iterates: the model that is evaluated.

The mean of w^1..w^t, or of the last n of them, can be formed by every replica, since it holds every w^t.  The convex
theorem with K local steps bounds f at another mean, over the clients' local iterates too,

    w-bar^T = 1/(KT) Σ_{t=1..T} Σ_{k=0..K-1} ū^{t,k},      ū^{t,k} = Σ_c p_c u_c^{t,k},

which begins with u^{1,0} = w^0 and needs what only the clients hold: an engine has to show it (`LocalIterates.visit`).

The last n of them are n vectors of R^d.  Where these are too many numbers to keep (`LARGEST_WINDOW`), a fading mean
stands in for theirs,

    m^t = Σ_i beta^(t-i) w^i / Σ_i beta^(t-i),   i = 1..t,   beta = (n-1)/(n+1),

one vector.  It is as old as theirs, Σ_i age_i weight_i = beta/(1-beta) = (n-1)/2, and leaves as much of noise that is
independent between rounds, Σ_i weight_i² = (1-beta)/(1+beta) = 1/n.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from desketch.errors import InputError

__all__ = ["Average", "FadingMean", "LastRounds", "LocalIterates", "WholeRun", "make_average"]

LARGEST_WINDOW = 1 << 24
"""Numbers: 64 MB, ten iterates of 1.6 million."""


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
        self._sum = w.to(torch.float64, copy=True) if self._sum is None else self._sum.add_(w)
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
        self._closed = WholeRun()
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
        self._closed.add(self._round / self._weight)
        self._round, self._weight = None, 0.0

    def of(self, w: Tensor) -> Tensor:
        """w-bar."""
        return self._closed.of(w)

    def state_dict(self) -> dict[str, Any]:
        """Sum and count of the closed rounds."""
        return self._closed.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._closed.load_state_dict(state)


class LastRounds(Average):
    """The mean of the last n iterates."""

    def __init__(self, n: int) -> None:
        if n < 1:
            raise InputError(f"an average takes the last n >= 1 rounds, got {n}")
        self._last: deque[Tensor] = deque(maxlen=n)

    def add(self, w: Tensor) -> None:
        """Remember w^t in the place of w^{t-n}."""
        kept = self._last.popleft() if len(self._last) == self._last.maxlen else torch.empty_like(w)
        self._last.append(kept.copy_(w))

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
        self._last.extend(w.clone() for w in state["last"])


class FadingMean(Average):
    """The mean of all iterates with weights that fade as fast as those of the last n do on average."""

    def __init__(self, n: int) -> None:
        self.beta = (n - 1) / (n + 1)
        self._mean: Tensor | None = None
        self._n = 0

    def add(self, w: Tensor) -> None:
        """Move towards w^t by its share of the weights so far."""
        self._n += 1
        if self._mean is None:
            self._mean = w.clone()
        else:
            self._mean.lerp_(w, (1 - self.beta) / (1 - self.beta**self._n))

    def of(self, w: Tensor) -> Tensor:
        """m^t itself, to be read before the next round."""
        return w if self._mean is None else self._mean

    def state_dict(self) -> dict[str, Any]:
        """Mean and count."""
        return {"mean": self._mean, "n": self._n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._mean, self._n = None if state["mean"] is None else state["mean"].clone(), int(state["n"])


def make_average(last: int | str = 1, *, d: int) -> Average:
    """``1`` for none, ``n`` for the last n rounds, ``"all"`` for w^1..w^t, ``"local"`` for the theorem's w-bar.

    Of d numbers so many that n iterates are too much memory, the mean over n rounds is a fading one.
    """
    if last == "all":
        return WholeRun()
    if last == "local":
        return LocalIterates()
    if int(last) <= 1:
        return Average()
    return LastRounds(int(last)) if int(last) * d <= LARGEST_WINDOW else FadingMean(int(last))
