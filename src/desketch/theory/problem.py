"""Problem: the constants of an objective f = (1/N) sum_c f_c that the theorems speak of (Assumption ``ass:f_ass``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from desketch.errors import TheoryError

__all__ = ["Problem", "demand"]


def demand(condition: bool, message: str) -> None:
    """Raise TheoryError unless the precondition holds."""
    if not condition:
        raise TheoryError(message)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Constants of the objective; every f_c is L-smooth.

    ``mu``          strong convexity of every f_c; 0 for merely convex; None for non-convex
    ``sigma_star``  heterogeneity: sigma_star² = (1/N) sum_c |∇f_c(w*)|²   (the paper's sigma)
    ``distance``    |w⁰ - w*|
    ``gap``         f(w⁰) - f(w*); at most L·distance²/2, which is used when it is not given
    ``G``           a bound on every |∇f_c|, for K local steps on a non-convex objective only
    ``zeta``        a bound on the clients' spread at every w: (1/N) sum_c |∇f_c(w) - ∇f(w)|² <= zeta²
    """

    L: float
    mu: float | None = 0.0
    sigma_star: float = 0.0
    distance: float = 0.0
    gap: float | None = None
    G: float | None = None
    zeta: float | None = None

    def __post_init__(self) -> None:
        named = {k: v for k, v in vars(self).items() if v is not None}
        for name, value in named.items():
            demand(math.isfinite(value) and value >= 0, f"{name} must be a finite number >= 0, got {value}")
        demand(self.L > 0, f"the smoothness L must be positive, got {self.L}")
        demand(self.mu is None or self.mu <= self.L, f"mu cannot exceed L, got mu={self.mu} > L={self.L}")

    @property
    def curvature(self) -> str:
        """``strongly-convex``, ``convex`` or ``non-convex``."""
        if self.mu is None:
            return "non-convex"
        return "strongly-convex" if self.mu > 0 else "convex"

    @property
    def spread(self) -> float | None:
        """Zeta, or G, which bounds it; None where neither is known."""
        return self.G if self.zeta is None else self.zeta

    @property
    def initial_gap(self) -> float:
        """f(w⁰) - f(w*), or its upper bound L·distance²/2."""
        return self.L * self.distance**2 / 2 if self.gap is None else self.gap
