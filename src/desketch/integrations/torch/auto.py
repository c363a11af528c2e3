"""The method for a budget: the best measured row that the budget pays for, and a sentence that says why.

Rows are those of ``measured.py`` at the number of inner steps nearest to the run's (as a ratio); a row's bytes are
computed for the run at hand.  A budget below every row takes the thinnest one with rounds further apart, beyond what
was measured.  Where one worker alone was as good, or nothing was measured, the sentence says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from desketch.errors import ConfigError
from desketch.integrations.torch.measured import ALONE, ROWS, Row
from desketch.integrations.torch.methods import AnyWire, make
from desketch.integrations.torch.round import HELLO_BYTES
from desketch.keys import Key

__all__ = ["Choice", "bytes_per_parameter", "choose"]

_NOISE = 0.02  # nats: what two seeds of one row differ by


@dataclass(frozen=True)
class Choice:
    """What to do with a budget; ``worth_it`` is False where one worker alone was measured as good or better."""

    wire: AnyWire
    every: int
    outer_lr: float
    outer_momentum: float
    bytes_per_parameter: float
    worth_it: bool
    why: str


def choose(budget: float, *, steps: int, sizes: Sequence[int], ranks: int, adaptive: bool = True) -> Choice:
    """The best row within ``budget`` bytes a parameter, sent and received by a rank in ``steps`` inner steps."""
    if not (math.isfinite(budget) and budget > 0):
        raise ConfigError(f"budget is a number of bytes a parameter, above 0, got {budget}")
    if steps < 1:
        raise ConfigError(f"steps counts the inner steps of the run and is at least 1, got {steps}")
    regime = min(ALONE, key=lambda known: abs(math.log(known / steps)))
    priced = [
        (row, bytes_per_parameter(row.wire, row.every, steps=steps, sizes=sizes, ranks=ranks, adaptive=adaptive))
        for row in ROWS
        if row.steps == regime and row.every <= steps
    ]
    if not priced:
        raise ConfigError(f"{steps} steps are fewer than any measured distance between rounds; give every and wire")
    affordable = [(row, price) for row, price in priced if price <= budget]
    if affordable:
        row, price = min(affordable, key=lambda pair: pair[0].loss)
        return Choice(row.wire, row.every, row.outer_lr, row.outer_momentum, price, *_explain(row, price, budget))
    row, price = min(priced, key=lambda pair: pair[1])
    rounds = math.floor(budget * math.ceil(steps / row.every) / price)
    if rounds < 1:
        raise ConfigError(
            f"{budget:g} bytes a parameter do not pay for one round of the thinnest method in {steps} steps; raise the "
            "budget, or train without an outer step"
        )
    every = math.ceil(steps / rounds)
    price = bytes_per_parameter(row.wire, every, steps=steps, sizes=sizes, ranks=ranks, adaptive=adaptive)
    return Choice(row.wire, every, row.outer_lr, row.outer_momentum, price, False, _stretched(row, every, budget))


def bytes_per_parameter(
    wire: AnyWire, every: int, *, steps: int, sizes: Sequence[int], ranks: int, adaptive: bool = True
) -> float:
    """What a run sends and receives, a rank and parameter; what is left at its end is a round too."""
    method = make(wire, sizes=sizes, key=Key(0), momentum=0.9, moments=(lambda: []) if adaptive else None)
    a_round = method.round_bytes(ranks) + (ranks - 1) * HELLO_BYTES
    return 2 * a_round * math.ceil(steps / every) / sum(sizes)


def _explain(row: Row, price: float, budget: float) -> tuple[bool, str]:
    alone = ALONE[row.steps]
    worth = row.loss < alone - _NOISE
    measured = f"{row.loss:.3f} nats after {row.steps} steps, one worker alone {alone:.3f}"
    why = f"the best of those measured within {budget:g} bytes a parameter, it takes {price:.3g} ({measured})"
    return worth, why if worth else f"{why}; expect no gain over training alone"


def _stretched(row: Row, every: int, budget: float) -> str:
    return (
        f"no measured method fits {budget:g} bytes a parameter; this is the thinnest, with a round every {every} steps "
        f"in place of the measured {row.every}; expect no gain over training alone"
    )
