"""Sketches of torch tensors: autograd, forward mode and vmap of a linear operator, whose backward is its transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.forward_ad import unpack_dual

from desketch.sketches.base import Sketch

__all__ = ["apply_reference_to_array", "arrays", "linear"]


def linear(x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
    """R x, or Rᵀ x, along the last axis; straight to the kernels where nobody differentiates."""
    if R.compiled and not x.requires_grad and x.device.type == "cpu" and _tangent(x) is None:
        array = _memory(x)
        if array is not None:
            return torch.from_numpy(R.apply_array(array, transpose))
    return _differentiable(x, R, transpose)


def _tangent(x: torch.Tensor) -> torch.Tensor | None:
    return unpack_dual(x).tangent  # type: ignore[no-untyped-call]


def _memory(x: torch.Tensor) -> npt.NDArray[Any] | None:
    try:
        return x.numpy()
    except RuntimeError:  # a tensor inside torch.func has no memory of its own
        return None


def _apply(x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
    x = x.detach()
    if R.compiled and x.device.type == "cpu":
        return torch.from_numpy(R.apply_array(x.numpy(), transpose))
    rows = x.reshape(-1, R.b if transpose else R.d)
    out = R.reference.apply_t(rows) if transpose else R.reference.apply(rows)
    return out.reshape(*x.shape[:-1], out.shape[1])


class Linear(torch.autograd.Function):
    """x -> R x or Rᵀ x along the last axis; derivatives of any order and mode, and batches by vmap."""

    @staticmethod
    def forward(x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
        """Apply R, or Rᵀ, to the last axis."""
        return _apply(x, R, transpose)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, Sketch, bool], output: torch.Tensor) -> None:
        """Remember the operator; a linear map needs no saved tensors."""
        _, ctx.R, ctx.transpose = inputs

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The vector-Jacobian product: the transpose."""
        return _differentiable(gradient, ctx.R, not ctx.transpose), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        """The Jacobian-vector product: the operator itself."""
        return _differentiable(tangent, ctx.R, ctx.transpose)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: torch.Tensor, R: Sketch, transpose: bool
    ) -> tuple[torch.Tensor, int]:
        """A batch axis is one more leading axis."""
        assert in_dims[0] is not None
        return _differentiable(x.movedim(in_dims[0], 0), R, transpose), 0


_differentiable: Callable[[torch.Tensor, Sketch, bool], torch.Tensor] = Linear.apply


def apply_reference_to_array(R: Sketch, x: npt.NDArray[Any], transpose: bool) -> npt.NDArray[Any]:
    """Apply the reference path to a NumPy array."""
    return _apply(torch.from_numpy(np.ascontiguousarray(x)), R, transpose).numpy()


def arrays(w: torch.Tensor, s: torch.Tensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return w and s as arrays that share their memory, or None where autograd or a device needs tensor operations."""
    if w.requires_grad or s.requires_grad or w.device.type != "cpu" or s.device.type != "cpu":
        return None
    target, source = _memory(w), _memory(s)
    return None if target is None or source is None else (target, source)
