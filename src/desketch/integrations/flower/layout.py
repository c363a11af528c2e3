"""Between Flower's ArrayRecord and the flat vector w: names and shapes in the record's own order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from desketch.errors import InputError
from desketch.session.agreement import Agreement

__all__ = ["describe", "to_arrays", "to_vector"]


def describe(arrays: ArrayRecord) -> dict[str, Any]:
    """The ``names`` and ``shapes`` of an agreement; arrays that a sketch cannot carry are refused."""
    for name, array in arrays.items():
        if array.dtype != "float32":
            raise InputError(
                f"array {name!r} has dtype {array.dtype}; sketches carry float32: keep counters and running statistics "
                "out of the record (GroupNorm or LayerNorm instead of BatchNorm)"
            )
    if not arrays:
        raise InputError("initial_arrays is empty; pass ArrayRecord(model.state_dict())")
    return {"names": list(arrays), "shapes": [list(array.shape) for array in arrays.values()]}


def to_vector(arrays: ArrayRecord, agreement: Agreement | None = None) -> Tensor:
    """The arrays as w; with an agreement, in its order and checked against its shapes."""
    names = list(arrays) if agreement is None else list(agreement.names)
    if set(names) != set(arrays):
        raise InputError(f"the arrays are {sorted(arrays)}, the run's are {sorted(names)}; use one model on both sides")
    if agreement is not None and [list(arrays[name].shape) for name in names] != [list(s) for s in agreement.shapes]:
        raise InputError("the arrays have other shapes than the run's; use one model on both sides")
    return torch.from_numpy(np.concatenate([arrays[name].numpy().reshape(-1) for name in names]))


def to_arrays(w: Tensor, agreement: Agreement) -> ArrayRecord:
    """The vector w as the record a Flower app knows."""
    parts = torch.split(w, agreement.sizes)
    return ArrayRecord(
        {
            name: Array(part.reshape(tuple(shape)).numpy().copy())
            for name, part, shape in zip(agreement.names, parts, agreement.shapes, strict=True)
        }
    )
