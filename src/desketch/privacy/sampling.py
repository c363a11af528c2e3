"""Poisson sampling: every member takes part independently with probability q, drawn from OS entropy.

The size of a Poisson sample is random and secret; an empty one is released, noise and all, like any other.  The
divisor of a mean must therefore be the public ``q n``, never the size of the sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.privacy.noise import Entropy

__all__ = ["poisson_sample"]


def poisson_sample(n: int, rate: float, entropy: Entropy) -> Tensor:
    """Return the sorted indices of a Poisson sample of ``range(n)``."""
    if n < 1 or not 0 < rate <= 1:
        raise InputError(f"Poisson sampling needs n >= 1 and a rate in (0, 1], got n={n!r}, rate={rate!r}")
    if rate == 1:
        return torch.arange(n)
    return torch.from_numpy(entropy.uniform(n) < rate).nonzero().squeeze(1)
