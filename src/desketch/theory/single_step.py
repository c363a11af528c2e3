"""One local step a round: Theorems ``thm:single_step_strong_convex``, ``_convex`` and ``_non_convex``.

With K = 1 the averaged sketch is the sketch of ∇f(w), so heterogeneity does not enter and eta = eta_global·eta_local.
The three statements hold as printed, and the first is attained: f = (L/2)|w|² at eta = 1/((1+alpha)L) gives equality.
The same proofs hold with ``Embedding.alpha_curved`` in place of alpha when f has one quadratic upper model,
f(y) <= f(x) + <∇f(x), y-x> + (y-x)ᵀH(y-x)/2 with λ_max(H) = L: only E[(RᵀRg)ᵀH(RᵀRg)] enters the first and third.
"""

from __future__ import annotations

from desketch.theory.convergence import Theorem, geometric, geometric_rounds
from desketch.theory.problem import Problem, demand

__all__ = ["THEOREMS"]


class _Single(Theorem):
    scheme = "single"
    form = "paper"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(K == 1, f"{self.label} is about one local step, got K={K}; use scheme 'local'")

    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """1/((1+alpha)L)."""
        return 1 / ((1 + alpha) * problem.L)


class SingleStronglyConvex(_Single):
    """E f(w^{T+1}) - f* <= (1 - mu·eta)^T (f(w⁰) - f*) for eta <= 1/((1+alpha)L)."""

    curvature = "strongly-convex"
    label = "thm:single_step_strong_convex"
    quantity = "E f(w^{T+1}) - f*"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(bool(problem.mu), f"{self.label} needs mu > 0, got {problem.mu}; use the convex or non-convex theorem")

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return geometric((problem.mu or 0.0) * eta, T) * problem.initial_gap

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return geometric_rounds((problem.mu or 0.0) * eta, eps / problem.initial_gap) if problem.initial_gap else 0.0


class SingleConvex(_Single):
    """E f(w̄^T) - f* <= |w⁰-w*|²/(eta(T+1)) for eta <= 1/(2(1+alpha)L), w̄^T the mean of w⁰..w^T."""

    curvature = "convex"
    label = "thm:single_step_convex"
    quantity = "E f(mean of w^0..w^T) - f*"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(problem.mu is not None, f"{self.label} needs a convex objective; use the non-convex theorem")

    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """1/(2(1+alpha)L)."""
        return 1 / (2 * (1 + alpha) * problem.L)

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.distance**2 / (eta * (T + 1))

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return problem.distance**2 / (eta * eps) - 1


class SingleNonConvex(_Single):
    """min_{t<=T} E|∇f(w^t)|² <= 2(f(w⁰)-f*)/(eta(T+1)) for eta <= 1/((1+alpha)L)."""

    curvature = "non-convex"
    label = "thm:single_step_non_convex"
    quantity = "min_{t<=T} E|grad f(w^t)|^2"

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return 2 * problem.initial_gap / (eta * (T + 1))

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return 2 * problem.initial_gap / (eta * eps) - 1


THEOREMS: tuple[Theorem, ...] = (SingleStronglyConvex(), SingleConvex(), SingleNonConvex())
