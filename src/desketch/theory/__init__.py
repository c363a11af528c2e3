"""Constants, bounds and plans from the paper's theorems: floats only, no torch.

``embedding`` (a and alpha of a family), ``projection`` (seen in a subspace), ``tails`` (with high probability),
``convergence`` with ``single_step`` and ``local_steps`` (bounds and rounds), ``noise`` and ``link`` (what rounding,
mini-batches, absence and privacy add), ``communication`` (bits), ``planner`` (which sketch, how many steps),
``functions`` with ``falsifier`` (the paper's function table, re-derived).
"""

from __future__ import annotations

from desketch.theory.communication import (
    compare_with_local_gd,
    linear_rate_down_to,
    linear_rate_in_the_paper,
    total_bits,
)
from desketch.theory.convergence import Schedule, Theorem, theorem, theorems
from desketch.theory.embedding import Embedding, alpha_lower_bound, embedding
from desketch.theory.noise import Noise
from desketch.theory.problem import Problem
from desketch.theory.projection import projected_alpha, projected_deviation, projected_variance

__all__ = [
    "Embedding",
    "Noise",
    "Problem",
    "Schedule",
    "Theorem",
    "alpha_lower_bound",
    "compare_with_local_gd",
    "embedding",
    "linear_rate_down_to",
    "linear_rate_in_the_paper",
    "projected_alpha",
    "projected_deviation",
    "projected_variance",
    "theorem",
    "theorems",
    "total_bits",
]
