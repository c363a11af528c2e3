"""K local steps a round: Theorems ``thm:kstep_kmr19_strcvx``, ``thm:kstep_kmr19`` and the one of ``sec:app_kstep_non``.

Printed and corrected forms; eta is eta_local and eta_global = 1. The corrected convex forms keep the paper's lemmas
``lem:rt`` and ``lem:vtk`` and lose less on the way. With x = eta·L·K and c = (1+alpha)·x <= 1/4, a round satisfies

    sum_k V^k <= (6x² Φ/L + 1.5 eta² K (K-1)² sigma_star²)/(1 - 3x²),        Φ = sum_k E[f(ū^k) - f*],
    E|r⁺|² <= (1 - mu·eta)^K E|r|² + eta·L·(1 + 2c) sum_k V^k - eta·(2 - 4c - [mu > 0](2x - 4x²)) Φ,

so that (i) the exponent of the strongly convex rate is K·T, not T, (ii) the floor carries (K-1)², not K³: one local
step has no heterogeneity floor at all, (iii) steps twice as long are admissible. ``docs/theory.md`` has the proof.

With noise alpha becomes A (P + 3Q/2) - 1, and a round adds to E|r⁺|² what ``Noise.added`` says with the energy
3 sigma_star², and the drift that mini-batch noise causes, eta³ L nu² (1+2c)/(1-3x²) · K(K-1)/2 · (H_K - 1/2).
"""

from __future__ import annotations

import math
from abc import abstractmethod

from desketch.theory.convergence import Theorem, geometric, geometric_rounds, least_rounds
from desketch.theory.noise import SILENT, Noise, client_energy, harmonic
from desketch.theory.problem import Problem, demand

__all__ = ["THEOREMS"]


class _Local(Theorem):
    scheme = "local"
    inverse_step = 8.0

    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """1/(8(1+alpha)LK) as printed, 1/(4(1+alpha)LK) corrected."""
        return 1 / (self.inverse_step * (1 + alpha) * problem.L * K)


class _Sharper(Theorem):
    """What the corrected convex statements share: where mean_c|∇f_c(u_c)|² enters, and the drift of noisy steps."""

    def best_step(self, problem: Problem, *, alpha: float, K: int, eps: float, noise: Noise = SILENT) -> float:
        return least_rounds(self, problem, alpha=alpha, K=K, eps=eps, noise=noise)

    def share(self, problem: Problem, K: int) -> float:
        """3L²V + 6Lφ beside 2L²V + 4Lφ for the mean; one local step has no drift V."""
        return 1.5 if K > 1 else client_energy(problem)[0] / 2

    def noise_energy(self, problem: Problem, K: int) -> float:
        return 3 * problem.sigma_star**2 if K > 1 else client_energy(problem)[1]

    def noise_parts(
        self, problem: Problem, *, alpha: float, K: int = 1, eta: float, noise: Noise = SILENT
    ) -> dict[str, float]:
        parts = super().noise_parts(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        drift = _stiffness(problem, alpha=load, K=K, eta=eta) * eta**3 * problem.L * noise.gradient**2
        drift *= K * (K - 1) / 2 * (harmonic(K) - 0.5)
        parts["mini-batch noise"] += drift * self.per_round(problem, alpha=load, K=K, eta=eta)
        return parts


class _StronglyConvex(_Local):
    curvature = "strongly-convex"
    quantity = "E f(w^{T+1}) - f*"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(bool(problem.mu), f"{self.label} needs mu > 0, got {problem.mu}; use the convex or non-convex theorem")


class PaperLocalStronglyConvex(_StronglyConvex):
    """(L/2)|w⁰-w*|² e^{-mu·eta·T} + 4 eta² L² K³ sigma²/mu: holds, but forgets that a round is K steps."""

    form = "paper"
    label = "thm:kstep_kmr19_strcvx"
    takes_noise = False

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.L / 2 * problem.distance**2 * math.exp(-(problem.mu or 0.0) * eta * T)

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        start = problem.L / 2 * problem.distance**2
        return max(math.log(start / eps), 0.0) / ((problem.mu or 0.0) * eta) if start else 0.0

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return 4 * eta**2 * problem.L**2 * K**3 * problem.sigma_star**2 / (problem.mu or math.inf)


class LocalStronglyConvex(_Sharper, _StronglyConvex):
    """(L/2)|w⁰-w*|² (1-mu·eta)^{KT} + at most 1.6 eta² L² (K-1)² sigma²/mu, for eta <= 1/(4(1+alpha)LK)."""

    form = "corrected"
    label = "thm:kstep_kmr19_strcvx (sharper)"
    inverse_step = 4.0

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.L / 2 * problem.distance**2 * geometric((problem.mu or 0.0) * eta, K * T)

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        start = problem.L / 2 * problem.distance**2
        return geometric_rounds((problem.mu or 0.0) * eta, eps / start) / K if start else 0.0

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        drift = _drift(problem, alpha=alpha, K=K, eta=eta)
        return drift * self.per_round(problem, alpha=alpha, K=K, eta=eta) if drift else 0.0

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """(L/2)/(1 - (1 - mu·eta)^K)."""
        return problem.L / 2 / (1 - geometric((problem.mu or 0.0) * eta, K))


class _Convex(_Local):
    curvature = "convex"
    quantity = "E f(mean of all averaged local iterates) - f*"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(problem.mu is not None, f"{self.label} needs a convex objective; use the non-convex theorem")

    @abstractmethod
    def rate(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """The constant in front of |w⁰-w*|²/(eta·K·T)."""

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        rate = self.rate(problem, alpha=alpha, K=K, eta=eta)
        return rate * problem.distance**2 / (eta * K * T) if T else math.inf

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return self.rate(problem, alpha=alpha, K=K, eta=eta) * problem.distance**2 / (eta * K * eps)


class PaperLocalConvex(_Convex):
    """4|w⁰-w*|²/(eta·K·T) + 32 eta² L K² sigma²: holds, about tenfold loose."""

    form = "paper"
    label = "thm:kstep_kmr19"
    takes_noise = False

    def rate(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return 4.0

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return 32 * eta**2 * problem.L * K**2 * problem.sigma_star**2


class LocalConvex(_Sharper, _Convex):
    """(|w⁰-w*|²/(eta·K·T) + drift)/q with q = 2 - 4c - 6x²(1+2c)/(1-3x²) >= 4/13, for eta <= 1/(4(1+alpha)LK)."""

    form = "corrected"
    label = "thm:kstep_kmr19 (sharper)"
    inverse_step = 4.0

    def rate(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        x = eta * problem.L * K
        c = (1 + alpha) * x
        return 1 / (2 - 4 * c - 6 * x**2 * (1 + 2 * c) / (1 - 3 * x**2))

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return _drift(problem, alpha=alpha, K=K, eta=eta) * self.per_round(problem, alpha=alpha, K=K, eta=eta)

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """1/(q·eta·K)."""
        return self.rate(problem, alpha=alpha, K=K, eta=eta) / (eta * K)


class LocalGdConvex(_Convex):
    """Local GD without sketching (khaled2019first): 2|w⁰-w*|²/(eta·K·T) + 24 eta² L K² sigma², eta <= 1/(8LK).

    At alpha = 0 and this step LocalConvex has 0.73 and 1.43 in place of 2 and 24, so the statement is a consequence.
    """

    form = "local-gd"
    label = "khaled2019first, Theorem 1"
    takes_noise = False

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(alpha == 0, f"local GD sends the whole vector, so alpha must be 0, got {alpha}")

    def rate(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return 2.0

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return 24 * eta**2 * problem.L * K**2 * problem.sigma_star**2


class _NonConvex(_Local):
    curvature = "non-convex"
    quantity = "min_{t<=T} E|grad f(w^t)|^2"

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        super().check(problem, alpha=alpha, K=K)
        demand(bool(problem.G), f"{self.label} needs a bound G > 0 on every client's gradient norm; give one, or K=1")

    def still_cause(self, problem: Problem, K: int) -> str:
        return "gradient bound G"

    def floor_step(self, problem: Problem, *, alpha: float, K: int, eps: float, noise: Noise = SILENT) -> float:
        return eps / self.floors(problem, alpha=alpha, K=K, eta=1.0, noise=noise)


class PaperLocalNonConvex(_NonConvex):
    """(f(w⁰)-f*)/((T+1) eta_global) + eta L K² G² (eta + eta(1+alpha)/2): FALSE, the proof drops eta_local·K.

    Kept so that its counter-example can be shown; no plan uses it.
    """

    form = "paper"
    label = "theorem of sec:app_kstep_non"
    takes_noise = False
    holds = False

    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """1/(2LK), from ``lem:objective_move``."""
        return 1 / (2 * problem.L * K)

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.initial_gap / (T + 1)

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return problem.initial_gap / eps - 1

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return eta**2 * problem.L * K**2 * (problem.G or 0.0) ** 2 * (1 + (1 + alpha) / 2)


class LocalNonConvex(_NonConvex):
    """(f(w⁰)-f*)/((T+1) eta K) + (L G²/2)(eta (K-1) + eta K (1+alpha)): the corrected statement, for any step."""

    form = "corrected"
    label = "theorem of sec:app_kstep_non (corrected)"

    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """No limit: the floor alone keeps the step small."""
        return math.inf

    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        return problem.initial_gap / ((T + 1) * eta * K)

    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        return problem.initial_gap / (eta * K * eps) - 1

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        return problem.L * (problem.G or 0.0) ** 2 / 2 * eta * (K - 1 + K * (1 + alpha))

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """L/(2 eta K)."""
        return problem.L / (2 * eta * K)

    def noise_parts(
        self, problem: Problem, *, alpha: float, K: int = 1, eta: float, noise: Noise = SILENT
    ) -> dict[str, float]:
        """Noisy local steps also wander: sum_k E|u_c^k - w| grows by eta·nu·(sqrt 1 + ... + sqrt(K-1))."""
        parts = super().noise_parts(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        extra = (harmonic(K) - 1) / noise.clients  # the mean's cross terms, bounded as in ``Noise.added``
        wander = (problem.G or 0.0) * noise.gradient * sum(math.sqrt(k) for k in range(1, K)) / K
        parts["mini-batch noise"] += problem.L * eta * (wander + noise.gradient**2 * extra / 2)
        return parts


def _drift(problem: Problem, *, alpha: float, K: int, eta: float) -> float:
    """What heterogeneous clients add to E|w - w*|² in a round: 1.5 (1+2c)/(1-3x²) eta³ L K (K-1)² sigma_star²."""
    stiffness = _stiffness(problem, alpha=alpha, K=K, eta=eta)
    return 1.5 * stiffness * eta**3 * problem.L * K * (K - 1) ** 2 * problem.sigma_star**2


def _stiffness(problem: Problem, *, alpha: float, K: int, eta: float) -> float:
    """(1+2c)/(1-3x²): how far a drift of the clients carries into the mean."""
    x = eta * problem.L * K
    return (1 + 2 * (1 + alpha) * x) / (1 - 3 * x**2)


THEOREMS: tuple[Theorem, ...] = (
    PaperLocalStronglyConvex(),
    LocalStronglyConvex(),
    PaperLocalConvex(),
    LocalConvex(),
    LocalGdConvex(),
    PaperLocalNonConvex(),
    LocalNonConvex(),
)
