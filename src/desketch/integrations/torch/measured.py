"""What was measured, for ``method="auto"`` to choose from: losses of small GPTs by method and distance between rounds.

A character GPT of 108k parameters on tinyshakespeare, 4,000 steps, 4 workers, AdamW, validation loss in nats;
``alone`` is the mean of the four workers when none communicates.  Every loss is the mean over the seeds, one to three,
of a row of ``benchmarks/results/language_model.json`` (a test compares them).  Bytes are not in the table: they follow
from the method, the number of ranks and the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from desketch.integrations.torch.methods import AnyWire, Dense, Sparse
from desketch.wire import Wire

__all__ = ["ALONE", "ROWS", "Row"]

ALONE = {4000: 2.0345}
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
    Row(4000, Wire(compression=2.5), 500, 1.0, 0.5, 2.0632),
    Row(4000, Wire(compression=1), 1000, 1.0, 0.5, 2.0295),
    Row(4000, Wire(compression=1), 667, 1.0, 0.5, 1.9522),
    Row(4000, Wire(compression=2.5), 250, 1.0, 0.7, 1.9465),
    Row(4000, Wire(compression=2.5), 60, 1.0, 0.7, 1.8295),
    Row(4000, Wire(compression=2.5), 15, 1.0, 0.8, 1.7675),
    Row(4000, Wire(compression=2.5), 13, 1.0, 0.8, 1.7655),
    Row(4000, Wire(compression=2.5), 12, 1.0, 0.8, 1.7581),
    Row(4000, Sparse(share=0.05), 24, 2.0, 0.0, 1.8417),
    Row(4000, Dense(codec="int4"), 600, 1.0, 0.5, 1.9236),
    Row(4000, Dense(codec="int4"), 120, 1.0, 0.7, 1.8285),
    Row(4000, Dense(), 20, 1.0, 0.7, 1.7521),
)
