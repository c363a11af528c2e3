"""One local step a round: Theorems ``thm:single_step_strong_convex``, ``_convex`` and ``_non_convex``.

With K = 1 the averaged sketch is the sketch of ∇f(w), so heterogeneity does not enter and eta = eta_global·eta_local.
The three statements hold as printed, and the first is attained: f = (L/2)|w|² at eta = 1/((1+alpha)L) gives equality.
The same proofs hold with ``Embedding.alpha_curved`` in place of alpha when f has one quadratic upper model,
f(y) <= f(x) + <∇f(x), y-x> + (y-x)ᵀH(y-x)/2 with λ_max(H) = L: only E[(RᵀRg)ᵀH(RᵀRg)] enters the first and third.

With noise of variance V a round (``Noise.added`` over eta²) the floors are eta·L·V/(2mu), eta·V and eta·L·V. Where
clients round their own messages, the first and third need a bound zeta (or G) on the clients' spread; the strongly
convex theorem "by distance" does without: it follows |w - w*|² and pays (L/2)|w⁰-w*|² for f(w⁰) - f*.
"""

from __future__ import annotations

from desketch.theory.convergence import Theorem, geometric, geometric_rounds
from desketch.theory.noise import Noise, client_energy
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


class _OfTheValue(_Single):
    """Statements that follow f itself: messages rounded by the clients need a bound on their spread at every w."""

    def check_noise(self, problem: Problem, noise: Noise) -> None:
        super().check_noise(problem, noise)
        demand(
            not noise.client_factor or problem.spread is not None,
            f"{self.label} with rounded messages or absent clients needs a bound zeta on the clients' spread "
            "mean_c|grad f_c - grad f|² <= zeta², or G on their gradients; give one: desketch plan --spread or "
            "--gradient-bound, zeta or G of a Problem",
        )

    def noise_energy(self, problem: Problem, K: int) -> float:
        return (problem.spread or 0.0) ** 2


class SingleStronglyConvex(_OfTheValue):
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

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """L/(2 mu eta): E f⁺ - f* <= (1 - mu·eta)(f - f*) + L/2 times the variance."""
        return problem.L / (2 * (problem.mu or 0.0) * eta)


class SingleByDistance(_Single):
    """(L/2)|w⁰-w*|² (1 - mu·eta)^T for eta <= 1/((1+alpha)L): weaker than the above, but bears any noise.

    E|w⁺-w*|² <= (1 - mu·eta)|w-w*|² - 2eta(1 - (1+alpha)eta·L)(f - f*) + variance, where mean_c|∇f_c|² is bounded by
    f - f* and sigma_star² (``client_energy``), without a bound on the clients' spread elsewhere.
    """

    curvature = "strongly-convex"
    form = "by-distance"
    label = "thm:single_step_strong_convex (by distance)"
    quantity = "E f(w^{T+1}) - f*"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(bool(problem.mu), f"{self.label} needs mu > 0, got {problem.mu}; use the convex or non-convex theorem")

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.L / 2 * problem.distance**2 * geometric((problem.mu or 0.0) * eta, T)

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        start = problem.L / 2 * problem.distance**2
        return geometric_rounds((problem.mu or 0.0) * eta, eps / start) if start else 0.0

    def share(self, problem: Problem, K: int) -> float:
        return client_energy(problem)[0]

    def noise_energy(self, problem: Problem, K: int) -> float:
        return client_energy(problem)[1]

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """L/(2 mu eta)."""
        return problem.L / (2 * (problem.mu or 0.0) * eta)


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

    def share(self, problem: Problem, K: int) -> float:
        return client_energy(problem)[0]

    def noise_energy(self, problem: Problem, K: int) -> float:
        return client_energy(problem)[1]

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """1/eta."""
        return 1 / eta


class SingleNonConvex(_OfTheValue):
    """min_{t<=T} E|∇f(w^t)|² <= 2(f(w⁰)-f*)/(eta(T+1)) for eta <= 1/((1+alpha)L)."""

    curvature = "non-convex"
    label = "thm:single_step_non_convex"
    quantity = "min_{t<=T} E|grad f(w^t)|^2"

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return 2 * problem.initial_gap / (eta * (T + 1))

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return 2 * problem.initial_gap / (eta * eps) - 1

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """L/eta."""
        return problem.L / eta


THEOREMS: tuple[Theorem, ...] = (SingleStronglyConvex(), SingleByDistance(), SingleConvex(), SingleNonConvex())
