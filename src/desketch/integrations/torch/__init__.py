"""PyTorch over thin wires: `SketchedOuter`, an outer step between sites (``outer.py``), and `sketch_hook` for DDP."""

from __future__ import annotations

from desketch.integrations.torch.auto import Choice, choose
from desketch.integrations.torch.ddp import CompressionStats, EnergyNote, SketchState, sketch_hook
from desketch.integrations.torch.methods import METHODS, Dense, Signs, Sparse
from desketch.integrations.torch.outer import OuterStats, SketchedOuter

__all__ = [
    "METHODS",
    "Choice",
    "CompressionStats",
    "Dense",
    "EnergyNote",
    "OuterStats",
    "Signs",
    "SketchState",
    "SketchedOuter",
    "Sparse",
    "choose",
    "sketch_hook",
]
