"""Update: a broadcast after decoding, which is all that a replica's server optimiser may look at."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Update"]


@dataclass(frozen=True)
class Update:
    """The mean update u = Rᵀy (d,), and the norm |y| and length b of the sketch y that was on the wire.

    ``along`` is the mean of sqrt(d/b) <Δ_c, s>/|s| over the clients' raw updates, s the step before: one more number of
    the broadcast, where clients send running means (`desketch.fed.client_momentum`); None where they do not.
    ``bits`` is how many a number has, in the mean of both ways, at most 1.
    ``moments`` is what it says of the tensors' second moments, in rounds where it does (`desketch.fed.tensor_weights`).
    """

    vector: Tensor
    norm: float
    b: int
    along: float | None = None
    bits: float = 1.0
    moments: tuple[float, ...] = ()
