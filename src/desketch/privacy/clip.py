"""Clipping to a Euclidean ball: the one place where sensitivity comes from.

``clip(v, C) = v min(1, C / |v|)``, with ``|clip(v, C)| <= C`` for every finite input: zeros, subnormals, and values
whose squared norm overflows.  A non-finite row is refused, never clipped to something: a NaN has no norm to bound.
"""

from __future__ import annotations

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.privacy.events import check_positive

__all__ = ["check_clip", "clip_rows"]


def clip_rows(rows: Tensor, clip: float) -> Tensor:
    """Clip every row of ``(..., d)`` to norm at most ``clip``; rows already inside come back unchanged.

    A row is first divided by its largest entry, so that neither its norm nor the factor ``C / |v|`` can overflow or
    fall among the subnormals, where rounding costs percents.
    """
    check_clip(clip, rows.dtype)
    if rows.shape[-1] == 0:
        return rows.clone()
    largest = rows.abs().amax(dim=-1, keepdim=True)
    _refuse_non_finite(largest)
    unit = torch.where(largest > 0, rows / largest, 0.0)
    norms = torch.linalg.vector_norm(unit, dim=-1, keepdim=True, dtype=torch.float64)
    bound = clip * (1 - _margin(rows.dtype, rows.shape[-1]))
    inside = norms <= bound / largest.double()
    return torch.where(inside, rows, unit * (bound / norms).to(rows.dtype))


def check_clip(clip: float, dtype: torch.dtype) -> None:
    """Refuse a clip that is not positive and finite, or so small or large that ``dtype`` cannot keep it."""
    check_positive("clip", clip)
    if not dtype.is_floating_point:
        raise InputError(f"clipping needs floating-point rows, got {dtype}")
    limits = torch.finfo(dtype)
    if not limits.tiny / limits.eps <= clip <= limits.max / 4:
        raise InputError(
            f"a clip of {clip:g} leaves the normal range of {dtype}; choose one between {limits.tiny / limits.eps:.3g} "
            f"and {limits.max / 4:.3g}"
        )


def _margin(dtype: torch.dtype, d: int) -> float:
    """Eight half-units of rounding, of the quotient, the factor and the product, and five to spare; and the norm's own.

    The norm is a float64 sum of d squares, wrong by at most d / 2 of its units.
    """
    return 4 * torch.finfo(dtype).eps + d * torch.finfo(torch.float64).eps


def _refuse_non_finite(largest: Tensor) -> None:
    bad = ~torch.isfinite(largest)
    if bool(bad.any()):
        raise InputError(
            f"{int(bad.sum())} of {bad.numel()} vectors to clip hold NaN or infinity; they are refused, because "
            "nothing bounds them. Lower the step size, or check the data"
        )
