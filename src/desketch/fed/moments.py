"""What the inner optimiser knows of every tensor: its mean second moment, and whether its state is still finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["drop_broken_state", "second_moments"]

_NAMES = ("exp_avg_sq", "square_avg")  # Adam and its kin; RMSprop


def second_moments(optimizer: Any, parameters: Sequence[nn.Parameter]) -> list[float]:
    """The mean of v over every tensor; 0 where there is none yet."""
    return [_mean(optimizer.state.get(p, {})) for p in parameters]


def _mean(state: Any) -> float:
    return next((float(state[name].float().mean()) for name in _NAMES if isinstance(state.get(name), Tensor)), 0.0)


def drop_broken_state(optimizer: Any, parameters: Sequence[nn.Parameter]) -> None:
    """Forget the state of a parameter that holds NaN or infinity: it would spoil every later step."""
    for p in parameters:
        tensors = [value for value in optimizer.state.get(p, {}).values() if isinstance(value, Tensor)]
        if not all(bool(torch.isfinite(value).all()) for value in tensors):
            del optimizer.state[p]
