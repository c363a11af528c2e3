"""Batches of any shape: nested dicts, lists and tuples of tensors, as a DataLoader or a collate function gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from desketch.errors import InputError

__all__ = ["as_tensor", "leaves", "moved"]


def as_tensor(name: str, values: Any) -> Tensor:
    """Values a user holds as a tensor that a model can take: float32, or int64 for whole numbers."""
    if isinstance(values, list | tuple):
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype == object or values.dtype.kind not in "fiub":
            raise InputError(f"{name} must hold numbers, got an array of {values.dtype}; convert it first")
        values = torch.from_numpy(np.ascontiguousarray(values))
    if not isinstance(values, Tensor):
        raise InputError(f"{name} must be a tensor or an array, got {type(values).__name__}")
    wanted = torch.float32 if values.is_floating_point() else torch.int64
    return values.detach().to(wanted)


def leaves(batch: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, in order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from leaves(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from leaves(part)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on ``device``; everything else stays as it is."""
    return _mapped(lambda leaf: leaf.to(device), batch)


def _mapped(change: Callable[[Tensor], Tensor], batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: _mapped(change, part) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_mapped(change, part) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_mapped(change, part) for part in batch)
    return batch
