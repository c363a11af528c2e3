"""A sketch seen through an orthogonal projection: the paper's remark on coordinate-wise embeddings.

For any orthogonal projection P and any h the remark reads

    E[P RᵀR h] = P h,    E[(P RᵀR h)_i²] <= (P h)_i² + (a/b)|h|²,    |(P RᵀR h - P h)_i| < (beta/√b)|h| but for delta,

because every row of P has length at most one. That length is known, |P_i|² = P_ii (the *leverage* of coordinate i), and
summed over i the leverages are the rank: so (a/b)|h|² may be read as (a/b) P_ii |h|², and the energy that de-sketching
spreads into a subspace of rank r is (a/b) r |h|² instead of (a/b) d |h|². What is trained in a subspace (frozen layers,
adapters, a low-rank update) pays for the noise inside it only.
"""

from __future__ import annotations

from desketch.theory.embedding import Embedding
from desketch.theory.problem import demand
from desketch.theory.tails import vectors

__all__ = ["projected_alpha", "projected_deviation", "projected_variance"]


def projected_variance(constants: Embedding, *, leverage: float = 1.0) -> float:
    """The v with E[(P RᵀR h)_i²] <= (P h)_i² + v|h|² where P_ii = ``leverage``; the remark has leverage 1."""
    demand(0 <= leverage <= 1, f"the leverage P_ii of a coordinate lies in [0, 1], got {leverage}")
    return constants.a / constants.b * leverage


def projected_alpha(constants: Embedding, *, rank: int) -> float:
    """The v with E|P RᵀR h|² <= |P h|² + v|h|² for every projection of that rank: at most alpha, which is rank d."""
    demand(0 <= rank <= constants.d, f"a projection of R^{constants.d} has rank 0..{constants.d}, got {rank}")
    return min(constants.alpha, constants.a / constants.b * rank)


def projected_deviation(constants: Embedding, *, delta: float, leverage: float = 1.0) -> float:
    """The x with P(|(P RᵀR h)_i - (P h)_i| >= x|h|) <= delta: the family's own tail, times the length of row i of P."""
    demand(0 <= leverage <= 1, f"the leverage P_ii of a coordinate lies in [0, 1], got {leverage}")
    tail = vectors(constants.family, d=constants.d, b=constants.b, delta=delta)
    return tail.proved * leverage**0.5
