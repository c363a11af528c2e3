"""Constants, bounds and plans from the paper's theorems: floats only, no torch.

``embedding`` (a and alpha of a family), ``tails`` (with high probability), ``convergence`` with ``single_step`` and
``local_steps`` (bounds and rounds), ``communication`` (bits), ``planner`` (which sketch, how many steps), ``functions``
with ``falsifier`` (the paper's function table, re-derived).
"""

from __future__ import annotations

from desketch.theory.communication import compare_with_local_gd, total_bits
from desketch.theory.convergence import Schedule, Theorem, theorem, theorems
from desketch.theory.embedding import Embedding, alpha_lower_bound, embedding
from desketch.theory.problem import Problem

__all__ = [
    "Embedding",
    "Problem",
    "Schedule",
    "Theorem",
    "alpha_lower_bound",
    "compare_with_local_gd",
    "embedding",
    "theorem",
    "theorems",
    "total_bits",
]
