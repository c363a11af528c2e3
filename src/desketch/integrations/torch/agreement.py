"""Agreement: the ranks of a group are built alike and start from the same parameters, or say which argument differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from desketch.errors import RunError
from desketch.integrations.torch.exchange import Exchange

__all__ = ["digest", "require_equal", "short"]

_SHOWN = 80  # characters of a value in an error
_ADVICE = {
    "parameters": "freeze and unfreeze the same ones on every rank before building the outer step",
    "start": "build the model from one seed or checkpoint on every rank, or call outer.synchronise() first",
    "round": "resume every rank from the same round, or call outer.synchronise() first",
}


def digest(vector: Tensor) -> bytes:
    """Eight bytes that tell whether two vectors on the CPU are equal in every bit."""
    return hashlib.blake2b(vector.numpy().view(np.uint8).data, digest_size=8).digest()


def short(text: str) -> str:
    """A short name for a long text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def require_equal(arguments: Mapping[str, str], exchange: Exchange) -> None:
    """Raise on every rank alike, by the name of the first argument that is not the same on all."""
    rows = [json.loads(row) for row in exchange.gather_any(json.dumps(dict(arguments)).encode())]
    for name in arguments:
        values = [row[name] for row in rows]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise RunError(
                f"the ranks differ in {name}: rank 0 has {values[0][:_SHOWN]}, rank {other} has "
                f"{values[other][:_SHOWN]}; {_ADVICE.get(name, 'give the same arguments on every rank')}"
            )
