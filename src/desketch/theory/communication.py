"""Bits of communication: of a schedule, in the paper's order of growth, and beside local GD without sketching.

The paper counts N·b numbers a round (Theorems ``thm:communication_kstep_convex`` and ``_convex2``); a message here is
``b`` numbers of ``bits`` each, up and down, plus a frame header.

*Linear rate.* The paper remarks that for a target error of at least sigma_star²/(mu·d²) local GD converges linearly
under strong convexity and smoothness alone: the largest admissible step then serves, and rounds grow as log(1/target).
It is the case 1 + alpha ~ d (b of order one), K = 1 of ``linear_rate_down_to``; by the corrected theorem K = 1 without
noise is linear down to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from desketch.theory.convergence import Schedule, Theorem, theorem
from desketch.theory.noise import SILENT, Noise
from desketch.theory.problem import Problem, demand

__all__ = [
    "Comparison",
    "compare_with_local_gd",
    "linear_rate_down_to",
    "linear_rate_in_the_paper",
    "order_of_growth",
    "order_of_growth_local_gd",
    "total_bits",
]


def total_bits(*, T: int, N: int, b: int, bits_up: float = 32, bits_down: float = 32, header_bits: float = 0) -> float:
    """T rounds of N uplinks and N downlinks of b numbers."""
    return T * N * (b * (bits_up + bits_down) + 2 * header_bits)


def order_of_growth(problem: Problem, *, d: int, N: int, eps: float) -> float:
    """The paper's O(·) at its best b, without the constant.

    Strongly convex (``thm:communication_kstep_convex2``): (LN/mu) max{d, sqrt(sigma²/(mu·eps))} log(L D²/eps);
    convex (``thm:communication_kstep_convex``): D² N max{L d/eps, sigma sqrt(L)/eps^1.5}.
    """
    return _order(problem, d=d, N=N, eps=eps, floor_weight=1.0)


def order_of_growth_local_gd(problem: Problem, *, d: int, N: int, eps: float) -> float:
    """The same for local GD sending all d numbers (khaled2019first): the second term also carries d."""
    return _order(problem, d=d, N=N, eps=eps, floor_weight=float(d))


def _order(problem: Problem, *, d: int, N: int, eps: float, floor_weight: float) -> float:
    demand(problem.mu is not None, "the paper states no communication cost for non-convex objectives")
    demand(eps > 0, f"the target error must be positive, got {eps}")
    mu, L, D2, sigma = problem.mu or 0.0, problem.L, problem.distance**2, problem.sigma_star
    if mu > 0:
        logarithm = max(math.log(L * D2 / eps), 1.0) if D2 else 1.0
        return L * N / mu * max(d, floor_weight * sigma / math.sqrt(mu * eps)) * logarithm
    return D2 * N * max(L * d / eps, floor_weight * sigma * math.sqrt(L) / eps**1.5)


def linear_rate_in_the_paper(problem: Problem, *, d: int) -> float:
    """sigma_star²/(mu·d²): the least target error for which the paper remarks a linear rate."""
    demand(bool(problem.mu), f"a linear rate needs strong convexity, mu > 0, got {problem.mu}")
    return problem.sigma_star**2 / ((problem.mu or math.inf) * d**2)


def linear_rate_down_to(
    statement: Theorem, problem: Problem, *, alpha: float, K: int = 1, noise: Noise = SILENT
) -> float:
    """The least target error that the largest admissible step still reaches, half of it for the floor."""
    statement.check(problem, alpha=alpha, K=K)
    statement.check_noise(problem, noise)
    demand(
        statement.curvature == "strongly-convex", f"a linear rate needs strong convexity; {statement.label} has none"
    )
    top = statement.largest_step(problem, alpha=alpha, K=K, noise=noise)
    return 2 * statement.floors(problem, alpha=alpha, K=K, eta=top, noise=noise)


@dataclass(frozen=True)
class Comparison:
    """One target reached with sketches and without, both by the corrected K-step theorems."""

    sketched: Schedule
    plain: Schedule
    sketched_bits: float
    plain_bits: float

    @property
    def saving(self) -> float:
        """How many times fewer bits the sketched run sends."""
        return self.plain_bits / self.sketched_bits


def compare_with_local_gd(
    problem: Problem,
    *,
    d: int,
    b: int,
    N: int,
    K: int,
    alpha: float,
    eps: float,
    bits: float = 32,
    noise: Noise = SILENT,
) -> Comparison:
    """Rounds and bits to eps with (b, alpha, noise) against b = d, alpha = 0, for the same K and number format."""
    statement = theorem("local", problem.curvature)
    sketched = statement.rounds(problem, alpha=alpha, K=K, eps=eps, noise=noise)
    plain = statement.rounds(problem, alpha=0.0, K=K, eps=eps)
    return Comparison(
        sketched=sketched,
        plain=plain,
        sketched_bits=total_bits(T=sketched.T, N=N, b=b, bits_up=bits, bits_down=bits),
        plain_bits=total_bits(T=plain.T, N=N, b=d, bits_up=bits, bits_down=bits),
    )
