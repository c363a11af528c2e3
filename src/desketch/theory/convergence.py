"""Convergence theorems as objects: admissible step, bound after T rounds, rounds for a target accuracy.

A theorem bounds ``quantity`` after T rounds of Algorithm 1 with one fresh R_t per round, as

    bound(T) = transient(T) + floor + noise floor,

where the floors, due to heterogeneous clients and to ``Noise``, are lowered by a smaller step. Noise enters twice:
alpha becomes ``loaded_alpha``, and ``noise_parts`` are added; without noise the bound is that of the paper's algorithm.
``theorem(scheme, curvature, form)`` finds one: scheme ``single`` (one local step, ``single_step.py``) or ``local`` (K
of them, ``local_steps.py``); form ``paper`` as printed or ``corrected``. The two agree where the print is right.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from desketch.theory.noise import SILENT, Noise
from desketch.theory.problem import Problem, demand

__all__ = ["Schedule", "Theorem", "geometric", "geometric_rounds", "least_rounds", "theorem", "theorems"]

_SLACK = 1 + 1e-9  # a step equal to the largest admissible one, up to rounding, is admissible
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps and rounds that bring the bound below a target."""

    eta_local: float
    eta_global: float
    K: int
    T: int
    bound: float
    binds: str


class Theorem(ABC):
    """One convergence statement; stateless.

    Subclasses state it for a sketch of second moment 1 + alpha; ``loaded_alpha``, ``noise_energy`` and ``per_round``
    extend it to noise. ``takes_noise`` is False for statements that are printed without it.
    """

    scheme: ClassVar[str]
    curvature: ClassVar[str]
    form: ClassVar[str]
    label: ClassVar[str]
    quantity: ClassVar[str]
    holds: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True

    @abstractmethod
    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """The largest admissible eta_local (eta_global = 1) for a sketch and wire of this alpha."""

    @abstractmethod
    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        """The part of the bound that vanishes with T."""

    @abstractmethod
    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        """The real T at which the transient equals eps."""

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """The part of the bound that stays, without noise."""
        return 0.0

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        """Raise TheoryError where a precondition fails."""
        demand(alpha >= 0 and math.isfinite(alpha), f"alpha must be a finite number >= 0, got {alpha}")
        demand(K >= 1, f"K counts local steps and is at least 1, got {K}")

    def check_noise(self, problem: Problem, noise: Noise) -> None:
        """Raise TheoryError where the statement does not cover this noise."""
        demand(self.takes_noise or noise.silent, f"{self.label} is printed without noise; use the corrected form")

    def share(self, problem: Problem, K: int) -> float:
        """How the energy of single clients counts beside that of their mean, in ``Noise.loaded``."""
        return 1.0

    def noise_energy(self, problem: Problem, K: int) -> float:
        """What mean_c|∇f_c|² can be at the optimum: the energy that rounding of messages keeps stirring."""
        return 0.0

    def per_round(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """The floor that one unit of variance, added to w in every round, leaves."""
        return 0.0

    def loaded_alpha(self, problem: Problem, *, alpha: float, K: int = 1, noise: Noise = SILENT) -> float:
        """Alpha of the sketch together with the noise that is proportional to the update."""
        return noise.loaded(alpha, self.share(problem, K))

    def noise_parts(
        self, problem: Problem, *, alpha: float, K: int = 1, eta: float, noise: Noise = SILENT
    ) -> dict[str, float]:
        """The floor that noise leaves, by cause."""
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        factor = self.per_round(problem, alpha=load, K=K, eta=eta)
        parts = noise.added(alpha=alpha, K=K, eta=eta, energy=self.noise_energy(problem, K))
        return {cause: factor * variance for cause, variance in parts.items()}

    def floors(self, problem: Problem, *, alpha: float, K: int = 1, eta: float, noise: Noise = SILENT) -> float:
        """Everything that stays: the floor of heterogeneous clients and of noise."""
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        still = self.floor(problem, alpha=load, K=K, eta=eta)
        if noise.silent:
            return still
        return still + sum(self.noise_parts(problem, alpha=alpha, K=K, eta=eta, noise=noise).values())

    def largest_step(self, problem: Problem, *, alpha: float, K: int = 1, noise: Noise = SILENT) -> float:
        """``max_step`` with the alpha that noise loads."""
        return self.max_step(problem, alpha=self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise), K=K)

    def floor_step(self, problem: Problem, *, alpha: float, K: int, eps: float, noise: Noise = SILENT) -> float:
        """A step whose floors are at most eps: they grow at least as eta², with noise at least as eta."""
        top = self.largest_step(problem, alpha=alpha, K=K, noise=noise)
        floor = self.floors(problem, alpha=alpha, K=K, eta=top, noise=noise)
        return top if floor <= eps else top * (eps / floor) ** (0.5 if noise.silent else 1.0)

    def bound(self, problem: Problem, *, alpha: float, K: int = 1, eta: float, T: int, noise: Noise = SILENT) -> float:
        """The theorem's right-hand side after T rounds with step ``eta``."""
        self.check(problem, alpha=alpha, K=K)
        self.check_noise(problem, noise)
        top = self.largest_step(problem, alpha=alpha, K=K, noise=noise)
        demand(
            0 < eta <= top * _SLACK, f"{self.label} needs 0 < eta_local <= {top:.6g}, got {eta:.6g}; lower eta_local"
        )
        demand(T >= 0, f"T counts rounds, got {T}")
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        stays = self.floors(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        return self.transient(problem, alpha=load, K=K, eta=eta, T=T) + stays

    def rounds(self, problem: Problem, *, alpha: float, K: int = 1, eps: float, noise: Noise = SILENT) -> Schedule:
        """The step and the T that bring the bound to eps."""
        self.check(problem, alpha=alpha, K=K)
        self.check_noise(problem, noise)
        demand(0 < eps < math.inf, f"the target error must be a positive number, got {eps}")
        eta = self.best_step(problem, alpha=alpha, K=K, eps=eps, noise=noise)
        left = eps - self.floors(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        T = max(1, math.ceil(self.transient_rounds(problem, alpha=load, K=K, eta=eta, eps=left)))
        top = self.largest_step(problem, alpha=alpha, K=K, noise=noise)
        binds = "largest admissible step" if eta >= 0.99 * top else self.trade_off(problem, alpha, K, eta, noise)
        reached = self.bound(problem, alpha=alpha, K=K, eta=eta, T=T, noise=noise)
        return Schedule(eta_local=eta, eta_global=1.0, K=K, T=T, bound=reached, binds=binds)

    def best_step(self, problem: Problem, *, alpha: float, K: int, eps: float, noise: Noise = SILENT) -> float:
        """As the paper: half of eps for the floor; with noise, the step of fewest rounds."""
        if not noise.silent:
            return least_rounds(self, problem, alpha=alpha, K=K, eps=eps, noise=noise)
        top = self.max_step(problem, alpha=alpha, K=K)
        return min(top, self.floor_step(problem, alpha=alpha, K=K, eps=eps / 2))

    def trade_off(self, problem: Problem, alpha: float, K: int, eta: float, noise: Noise) -> str:
        """What keeps the step below the largest admissible one: the largest floor."""
        load = self.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)
        causes = {self.still_cause(problem, K): self.floor(problem, alpha=load, K=K, eta=eta)}
        causes |= {} if noise.silent else self.noise_parts(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        return max(causes, key=lambda cause: causes[cause])

    def still_cause(self, problem: Problem, K: int) -> str:
        """What makes ``floor``."""
        return "heterogeneity floor" if K > 1 and problem.sigma_star else "variance of the sketch"


def least_rounds(
    statement: Theorem, problem: Problem, *, alpha: float, K: int, eps: float, noise: Noise = SILENT
) -> float:
    """The step with the fewest rounds to eps: golden section on log eta (T(eta) falls, then rises to the floor)."""
    load = statement.loaded_alpha(problem, alpha=alpha, K=K, noise=noise)

    def rounds(log_eta: float) -> float:
        eta = math.exp(log_eta)
        left = eps - statement.floors(problem, alpha=alpha, K=K, eta=eta, noise=noise)
        return statement.transient_rounds(problem, alpha=load, K=K, eta=eta, eps=left) if left > 0 else math.inf

    safe = statement.floor_step(problem, alpha=alpha, K=K, eps=eps / 8, noise=noise)
    top = statement.max_step(problem, alpha=load, K=K)
    high = math.log(top if math.isfinite(top) else 8 * safe)  # no limit on the step: there every floor is linear
    low = min(math.log(safe), high - 1.5)
    x, y = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    best, fx, fy = (rounds(high), high), rounds(x), rounds(y)
    for _ in range(14):
        best = min(best, (fx, x), (fy, y))
        if fx <= fy:
            high, y, fy = y, x, fx
            x = high - _GOLDEN * (high - low)
            fx = rounds(x)
        else:
            low, x, fx = x, y, fy
            y = low + _GOLDEN * (high - low)
            fy = rounds(y)
    return math.exp(best[1])


def geometric(rate: float, T: float) -> float:
    """(1 - rate)^T for 0 < rate <= 1, without losing small rates."""
    return math.exp(T * math.log1p(-rate)) if rate < 1 else float(T == 0)


def geometric_rounds(rate: float, ratio: float) -> float:
    """The T with (1 - rate)^T = ratio."""
    if ratio >= 1:
        return 0.0
    return math.log(ratio) / math.log1p(-rate) if rate < 1 else 1.0


def theorems() -> tuple[Theorem, ...]:
    """Every statement, printed and corrected."""
    from desketch.theory import local_steps, single_step

    return (*single_step.THEOREMS, *local_steps.THEOREMS)


def theorem(scheme: str, curvature: str, form: str = "corrected") -> Theorem:
    """The statement for a scheme (``single``, ``local``) and curvature; the printed form stands where it is right."""
    found = {t.form: t for t in theorems() if (t.scheme, t.curvature) == (scheme, curvature)}
    demand(bool(found), f"no theorem for scheme {scheme!r} and curvature {curvature!r}")
    if form == "corrected":
        return found.get(form, found["paper"])
    demand(form in found, f"no form {form!r} of that theorem; choose one of {', '.join(found)}")
    return found[form]
