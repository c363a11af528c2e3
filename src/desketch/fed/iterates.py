"""Averages of the iterates: the model that is evaluated, made from w^1..w^t alone.

The convex theorem bounds f at w-bar, the mean of all iterates; the mean of the last n rounds keeps that smoothing and
forgets the start.  Every replica can form either, since it holds every w^t.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

from desketch.errors import InputError

__all__ = ["Average", "LastRounds", "WholeRun", "make_average"]


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
    """w-bar = (1/t) Σ w^i."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._n = 0

    def add(self, w: Tensor) -> None:
        """Add w^t to the sum."""
        self._sum = w.double() if self._sum is None else self._sum.add_(w)
        self._n += 1

    def of(self, w: Tensor) -> Tensor:
        """w-bar."""
        return w if self._sum is None else (self._sum / self._n).to(w.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Sum and count."""
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
    """``1`` for none, ``n`` for the last n rounds, ``"all"`` for w-bar."""
    if last == "all":
        return WholeRun()
    return LastRounds(int(last)) if int(last) > 1 else Average()
