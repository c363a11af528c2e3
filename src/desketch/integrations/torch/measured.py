"""What was measured, for ``method="auto"`` to choose from: losses of small GPTs by method and distance between rounds.

Character GPTs on tinyshakespeare, 4 workers, AdamW, validation loss in nats.  ``alone`` is one worker that never
communicates, at the same number of steps.  First measurements: one or two seeds, and gains were partly chosen on the
same validation set; ``benchmarks/language_model.py`` makes the table that will take their place.  Bytes are not in the
table: they follow from the method, the number of ranks and the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from desketch.integrations.torch.methods import AnyWire, Dense, Sparse
from desketch.wire import Wire

__all__ = ["ALONE", "ROWS", "Row"]

SOURCE = "455k parameters at 800 and 2,000 steps, 107k at 4,000 steps, 4 workers, tinyshakespeare"

ALONE = {800: 2.338, 2000: 2.063, 4000: 2.060}
"""Loss of one worker alone, by inner steps."""


@dataclass(frozen=True)
class Row:
    """One training run: inner steps, what travelled, how often, and the loss it ended at."""

    steps: int
    wire: AnyWire
    every: int
    loss: float


ROWS = (
    Row(800, Wire(compression=10), 5, 2.101),
    Row(800, Wire(compression=30), 5, 2.190),
    Row(800, Wire(compression=10), 20, 2.205),
    Row(800, Wire(compression=30), 20, 2.355),
    Row(800, Wire(compression=100), 20, 2.506),
    Row(800, Dense(), 20, 2.202),
    Row(800, Dense(codec="int4"), 20, 2.216),
    Row(800, Sparse(share=0.01), 5, 2.235),
    Row(800, Sparse(share=0.05), 20, 2.259),
    Row(2000, Wire(compression=10), 20, 2.006),
    Row(2000, Wire(compression=10), 5, 1.923),
    Row(2000, Dense(), 20, 1.912),
    Row(2000, Sparse(share=0.05), 20, 1.927),
    Row(2000, Sparse(share=0.01), 20, 2.130),
    Row(4000, Wire(compression=2.5), 80, 1.960),
    Row(4000, Wire(compression=5), 40, 1.986),
    Row(4000, Wire(compression=10), 20, 2.025),
    Row(4000, Wire(compression=2.5), 20, 1.859),
    Row(4000, Wire(compression=10), 5, 1.944),
    Row(4000, Dense(), 20, 1.818),
    Row(4000, Sparse(share=0.05), 20, 1.832),
    Row(4000, Sparse(share=0.05), 80, 2.049),
    Row(4000, Sparse(share=0.01), 20, 2.034),
)
