"""What was measured, for ``method="auto"`` to choose from: losses of small GPTs by method and distance between rounds.

A character GPT of 108k parameters on tinyshakespeare, 4,000 steps, 4 workers, AdamW, validation loss in nats, one seed;
``alone`` is the mean of the four workers when none communicates.  Every row is one of
``benchmarks/results/language_model.json`` (a test compares them).  Bytes are not in the table: they follow from the
method, the number of ranks and the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from desketch.integrations.torch.methods import AnyWire, Dense, Sparse
from desketch.wire import Wire

__all__ = ["ALONE", "ROWS", "Row"]

ALONE = {4000: 2.0316}
"""Loss of one worker alone, by inner steps."""


@dataclass(frozen=True)
class Row:
    """One training run: inner steps, what travelled, how often, the outer step, and the loss it ended at."""

    steps: int
    wire: AnyWire
    every: int
    outer_lr: float
    outer_momentum: float
    loss: float


ROWS = (
    Row(4000, Wire(compression=2.5), 250, 1.0, 0.7, 1.9489),
    Row(4000, Wire(compression=2.5), 240, 1.0, 0.7, 1.9447),
    Row(4000, Wire(compression=2.5), 60, 1.0, 0.7, 1.8287),
    Row(4000, Wire(compression=2.5), 15, 1.0, 0.8, 1.7675),
    Row(4000, Wire(compression=2.5), 12, 1.0, 0.8, 1.7581),
    Row(4000, Sparse(share=0.05), 24, 2.0, 0.0, 1.8526),
    Row(4000, Dense(codec="int4"), 600, 1.0, 0.5, 1.9131),
    Row(4000, Dense(codec="int4"), 120, 1.0, 0.7, 1.8305),
    Row(4000, Dense(), 20, 1.0, 0.7, 1.7430),
)
