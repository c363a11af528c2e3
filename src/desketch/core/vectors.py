"""Vectors of R^d too long to copy: memory that is used again, and passes over them in blocks.

A block stays in the cache while several operations go over it, and what they need beside it is as long as a block.
Operations on single numbers give the same bits in blocks as at once; sums are taken in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from desketch.core import compiled

__all__ = ["BLOCK", "blocks", "dot", "empty", "empty_rows", "largest", "lengths", "norm"]

BLOCK = 1 << 16  # numbers


def empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An uninitialised tensor of this one's kind; a long one in memory that an earlier one has left."""
    if like.is_cpu and like.dtype is torch.float32 and compiled.available():
        return torch.from_numpy(compiled.empty(shape, np.float32))
    return like.new_empty(shape)


def empty_rows(n: int, like: Tensor) -> Tensor:
    """An uninitialised (n, d) for vectors like this one."""
    return empty((n, like.numel()), like)


def blocks(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The vectors' blocks, side by side."""
    return zip(*(torch.split(vector, BLOCK) for vector in vectors), strict=True)


def norm(v: Tensor) -> float:
    """|v|, summed in float64."""
    flat = v.reshape(-1)
    if flat.numel() <= BLOCK:
        return float(torch.linalg.vector_norm(flat, dtype=torch.float64))
    room = torch.empty(BLOCK, dtype=torch.float64, device=v.device)
    total = 0.0
    for (part,) in blocks(flat):
        wide = room[: len(part)].copy_(part)
        total += float(torch.dot(wide, wide))
    return sqrt(total) if total == total else total


def lengths(rows: Tensor) -> list[float]:
    """|row| of each, in the rows' own precision, as fast as they can be read; infinite where a square overflows."""
    if rows.shape[1] <= BLOCK:
        found: list[float] = torch.linalg.vector_norm(rows, dim=1).tolist()
        return found
    return [float(torch.dot(row, row)) ** 0.5 for row in rows]  # by BLAS: torch's norm takes three times as long


def dot(u: Tensor, v: Tensor) -> float:
    """<u, v>, summed in float64."""
    if u.numel() <= BLOCK:
        return float(torch.dot(u.double(), v.double()))
    x, y = torch.empty(2, BLOCK, dtype=torch.float64, device=u.device)
    return sum(float(torch.dot(x[: len(a)].copy_(a), y[: len(b)].copy_(b))) for a, b in blocks(u, v))


def largest(v: Tensor) -> float:
    """The largest |v_i|; NaN if there is one."""
    if v.numel() == 0:
        return 0.0
    low, high = torch.aminmax(v)
    return max(-float(low), float(high)) if low <= high else float("nan")
