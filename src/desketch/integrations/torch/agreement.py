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

_COLUMNS = 4096
_SHOWN = 80  # characters of a value in an error
_ADVICE = {
    "parameters": "freeze and unfreeze the same ones on every rank before building the outer step",
    "start": "build the model from one seed or checkpoint on every rank, or call outer.synchronise() first",
    "round": "resume every rank from the same round, or call outer.synchronise() first",
}


def digest(vector: Tensor) -> bytes:
    """Eight bytes that tell whether two float32 vectors on the CPU are equal in every bit.

    Sums of 32-bit words modulo 2^64, down columns 4096 wide, then a hash of the sums: one read of the vector where a
    hash of all of it would cost ten.  Replicas drift apart by accident, not by somebody who seeks a collision.
    """
    words = vector.numpy().view(np.uint32)
    whole = len(words) // _COLUMNS * _COLUMNS
    sums = np.add.reduce(words[:whole].reshape(-1, _COLUMNS), axis=0, dtype=np.uint64)
    return hashlib.blake2b(sums.tobytes() + words[whole:].tobytes(), digest_size=8).digest()


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
