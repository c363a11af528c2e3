"""Sketches of torch tensors: autograd, forward mode and vmap of a linear operator, whose backward is its transpose."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.forward_ad import unpack_dual

from desketch.core import compiled
from desketch.sketches.base import Sketch

__all__ = ["apply_reference_to_array", "arrays", "linear"]


def linear(x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
    """R x, or Rᵀ x, along the last axis; straight to the kernels where nobody differentiates."""
    if R.compiled and x.is_cpu and not x.requires_grad and type(x) is torch.Tensor and _tangent(x) is None:
        x = x.contiguous().resolve_neg()
        address = _address(x)
        if address is not None:
            return _apply_at(address, x, R, transpose)
    return _differentiable(x, R, transpose)


def _tangent(x: torch.Tensor) -> torch.Tensor | None:
    return unpack_dual(x).tangent  # type: ignore[no-untyped-call]


def _address(x: torch.Tensor) -> int | None:
    try:
        return x.data_ptr()
    except RuntimeError:  # a tensor inside torch.func has no memory of its own
        return None


def _apply_at(address: int, x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
    """Apply R, or Rᵀ, to the rows of x, which are contiguous at this address."""
    out = _empty((*x.shape[:-1], R.d), x) if transpose else x.new_empty((*x.shape[:-1], R.b))
    R.apply_at(address, out.data_ptr(), out.numel() // out.shape[-1], x.dtype is torch.float32, transpose)
    return out


def _empty(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    if prod(shape) * like.element_size() < compiled.LONG:
        return like.new_empty(shape)
    return torch.from_numpy(compiled.empty(shape, np.float32 if like.dtype is torch.float32 else np.float64))


def _apply(x: torch.Tensor, R: Sketch, transpose: bool) -> torch.Tensor:
    x = x.detach()
    if R.compiled and x.is_cpu:
        x = x.contiguous().resolve_neg()
        return _apply_at(x.data_ptr(), x, R, transpose)
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
    if w.requires_grad or s.requires_grad or not w.is_cpu or not s.is_cpu:
        return None
    try:
        return w.numpy(), s.numpy()
    except RuntimeError:  # as in _address
        return None
