"""OpenStep: a server step known before the first round, from the wire alone; for clients of Adam's kind.

With d/b the compression, omega the rounding variance of the codec, W the clients of a round, beta Nesterov's momentum,

    gain = 1 / (1 + (1 - beta)(d/b)(1 + omega)(1 + omega/W)),        eta_global = gain / (1 - beta):

the step at which a momentum that averages over 1/(1 - beta) rounds keeps noise and signal in balance.  It is the rule
of the outer step for torch.distributed (``integrations/torch``), in the normalisation of ``optimizers.py``.  `federate`
does not take it by itself: on a small GPT with weighted sketches it ended 0.04 nats below the learned step at 2.5x and
0.10 above it at 10x (``benchmarks/federate_gpt.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from desketch.theory.link import CODECS
from desketch.wire import Wire

__all__ = ["BETA", "OpenStep", "adaptive", "gain", "open_step"]

BETA = (
    0.7  # the best of those tried in runs of tens of rounds; not a function of the rounds, which a resumed run may add
)


@dataclass(frozen=True)
class OpenStep:
    """Nesterov with a step and a momentum that stay as they are."""

    eta_global: float
    beta: float = BETA
    server_optimizer: str = "nesterov"


def open_step(wire: Wire, *, d: int, clients: int) -> OpenStep:
    """The step of rounds with so many clients."""
    b = wire.sketch_size(d)
    up, down = (CODECS[codec].omega(b, wire.family) for codec in (wire.codec, wire.down))
    return OpenStep(gain(d / b, up=up, down=down, ranks=clients, momentum=BETA) / (1 - BETA))


def gain(compression: float, *, up: float, down: float, ranks: int, momentum: float) -> float:
    """1/(1 + (1-m)(d/b)(1+omega)(1+omega/W)), the first omega that of the way down, the other that of the way up."""
    return 1 / (1 + (1 - momentum) * compression * (1 + down) * (1 + up / ranks))


def adaptive(optimizer: Any) -> bool:
    """Whether the optimiser divides by the root of a second moment, as Adam does; wrappers are looked through."""
    while not isinstance(optimizer, torch.optim.Optimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    name = type(optimizer).__name__.lower()
    return any(part in name for part in ("adam", "rmsprop")) and "adamax" not in name
