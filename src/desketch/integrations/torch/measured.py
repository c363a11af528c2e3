"""What was measured, for ``method="auto"`` to choose from: losses of a small GPT by method and number of rounds.

A character GPT of 108k parameters on tinyshakespeare, 4,000 steps, 4 workers, AdamW, validation loss in nats;
``ALONE`` is the mean of the four workers when none communicates.  Every loss is the mean over the seeds, one to three,
of a row of ``benchmarks/results/language_model.json`` (a test compares them).  Bytes are not in the table: they follow
from the method, the number of ranks and the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from desketch.integrations.torch.methods import AnyWire, Dense, Sparse
from desketch.wire import Wire

__all__ = ["ALONE", "ROWS", "STEPS", "Row"]

STEPS = 4000
ALONE = 2.0345


@dataclass(frozen=True)
class Row:
    """One training run: what travelled, how often, the outer step, and the loss it ended at."""

    wire: AnyWire
    every: int
    outer_lr: float
    outer_momentum: float
    loss: float

    @property
    def rounds(self) -> int:
        """How often the workers met."""
        return math.ceil(STEPS / self.every)


_HALF_BIT_UP = Wire(compression=1.875, codec="trellis2", codec_down="trellis1")  # bytes of one bit each way at 2.5x
ROWS = (  # of one wire together, from few rounds to many
    Row(_HALF_BIT_UP, 500, 2.0, 0.5, 1.9835),
    Row(_HALF_BIT_UP, 400, 2.0, 0.5, 1.9379),
    Row(_HALF_BIT_UP, 200, 2.0, 0.5, 1.8652),
    Row(_HALF_BIT_UP, 120, 2.0, 0.5, 1.8371),
    Row(_HALF_BIT_UP, 60, 2.0, 0.5, 1.8018),
    Row(_HALF_BIT_UP, 38, 1.0, 0.75, 1.7989),
    Row(_HALF_BIT_UP, 31, 1.0, 0.75, 1.7789),
    Row(Wire(compression=2.5), 500, 1.0, 0.5, 2.0632),
    Row(Wire(compression=2.5), 250, 1.0, 0.7, 1.9465),
    Row(Wire(compression=2.5), 125, 1.0, 0.7, 1.8841),
    Row(Wire(compression=2.5), 80, 1.0, 0.7, 1.8472),
    Row(Wire(compression=2.5), 60, 1.0, 0.7, 1.8295),
    Row(Wire(compression=2.5), 25, 1.0, 0.7, 1.7839),
    Row(Wire(compression=2.5), 15, 1.0, 0.8, 1.7675),
    Row(Wire(compression=2.5), 13, 1.0, 0.8, 1.7655),
    Row(Wire(compression=2.5), 12, 1.0, 0.8, 1.7581),
    Row(Wire(compression=1), 1000, 1.0, 0.5, 2.0295),
    Row(Wire(compression=1), 667, 1.0, 0.5, 1.9522),
    Row(Wire(compression=1), 160, 2.0, 0.5, 1.8010),
    Row(Sparse(share=0.05), 24, 2.0, 0.0, 1.8417),
    Row(Dense(codec="int4"), 800, 1.0, 0.5, 1.9409),
    Row(Dense(codec="int4"), 600, 1.0, 0.5, 1.9236),
    Row(Dense(codec="int4"), 250, 1.0, 0.7, 1.8835),
    Row(Dense(codec="int4"), 180, 1.0, 0.7, 1.8424),
    Row(Dense(codec="int4"), 120, 1.0, 0.7, 1.8285),
    Row(Dense(codec="int4"), 60, 1.0, 0.7, 1.7749),
    Row(Dense(codec="int4"), 30, 1.0, 0.7, 1.7410),
    Row(Dense(), 20, 1.0, 0.7, 1.7521),
)
