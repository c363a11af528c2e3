"""The method for a budget: the best that was measured and that the budget pays for, and a sentence that says why.

``measured.py`` has the loss of each wire by rounds.  A budget pays for so many rounds of a wire: between two measured
numbers of rounds the loss is interpolated in their logarithm, and above the largest nothing is spent.  A run of another
length than the measured one keeps the number of rounds, not the steps between them, so that a budget buys the same.  A
budget below every row takes the thinnest one with fewer rounds than were measured.  Where one worker alone was as good,
or nothing was measured, the sentence says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from desketch.errors import ConfigError
from desketch.integrations.torch.measured import ALONE, ROWS, STEPS, Row
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
    """The best wire and distance between rounds for ``budget`` bytes a parameter, sent and received by a rank."""
    if not (math.isfinite(budget) and budget > 0):
        raise ConfigError(f"budget is a number of bytes a parameter, above 0, got {budget}")
    if steps < 1:
        raise ConfigError(f"steps counts the inner steps of the run and is at least 1, got {steps}")

    def price(wire: AnyWire, every: int) -> float:
        return bytes_per_parameter(wire, every, steps=steps, sizes=sizes, ranks=ranks, adaptive=adaptive)

    def paid(wire: AnyWire) -> int:
        """Rounds that the budget pays for; one rank sends nothing."""
        return min(math.floor(budget / price(wire, steps)), steps) if ranks > 1 else steps

    offers = [offer for wire, rows in groupby(ROWS, lambda row: row.wire) for offer in _offers([*rows], paid(wire))]
    if offers:
        loss, rounds, row = min(offers, key=lambda offer: offer[:2])
    else:
        row = min(ROWS, key=lambda row: price(row.wire, steps) * row.rounds)
        loss, rounds = math.inf, paid(row.wire)
    if rounds < 1:
        raise ConfigError(
            f"{budget:g} bytes a parameter do not pay for one round of the thinnest method; raise the budget, or train "
            "without an outer step"
        )
    every = math.ceil(steps / rounds)
    spent = price(row.wire, every)
    worth = loss < ALONE - _NOISE
    why = _measured(loss, rounds, spent, budget) if offers else _stretched(row, rounds, budget)
    why = why if worth else f"{why}; expect no gain over training alone"
    return Choice(row.wire, every, row.outer_lr, row.outer_momentum, spent, worth, why)


def _offers(rows: list[Row], rounds: int) -> Iterator[tuple[float, int, Row]]:
    """Loss, rounds and outer step of what so many rounds of a wire buy: any measured row, and a point between two."""
    paid = [row for row in rows if row.rounds <= rounds]
    yield from ((row.loss, row.rounds, row) for row in paid)
    if 0 < len(paid) < len(rows):
        below, above = rows[len(paid) - 1 : len(paid) + 1]
        share = math.log(rounds / below.rounds) / math.log(above.rounds / below.rounds)
        yield below.loss + share * (above.loss - below.loss), rounds, below


def bytes_per_parameter(
    wire: AnyWire, every: int, *, steps: int, sizes: Sequence[int], ranks: int, adaptive: bool = True
) -> float:
    """What a run sends and receives, a rank and parameter; what is left at its end is a round too."""
    method = make(wire, sizes=sizes, key=Key(0), momentum=0.9, moments=(lambda: []) if adaptive else None)
    a_round = method.round_bytes(ranks) + (ranks - 1) * HELLO_BYTES
    return 2 * a_round * math.ceil(steps / every) / sum(sizes)


def _measured(loss: float, rounds: int, spent: float, budget: float) -> str:
    return (
        f"the best of those measured within {budget:g} bytes a parameter, it takes {spent:.3g} in {rounds} rounds "
        f"({loss:.3f} nats after {STEPS} steps of a small GPT, one worker alone {ALONE:.3f})"
    )


def _stretched(row: Row, rounds: int, budget: float) -> str:
    return (
        f"no measured method fits {budget:g} bytes a parameter; this is the thinnest, with {rounds} rounds in place of "
        f"the measured {row.rounds}"
    )
