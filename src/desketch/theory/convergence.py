"""Convergence theorems as objects: admissible step, bound after T rounds, rounds for a target accuracy.

A theorem bounds ``quantity`` after T rounds of Algorithm 1 with one fresh R_t per round, as

    bound(T) = transient(T) + floor,

where the floor, due to heterogeneous clients, is lowered by a smaller step. ``theorem(scheme, curvature, form)`` finds
one: scheme ``single`` (one local step, ``single_step.py``) or ``local`` (K of them, ``local_steps.py``); form ``paper``
as printed or ``corrected``. The two agree where the print is right.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

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
    """One convergence statement; stateless."""

    scheme: ClassVar[str]
    curvature: ClassVar[str]
    form: ClassVar[str]
    label: ClassVar[str]
    quantity: ClassVar[str]
    holds: ClassVar[bool] = True

    @abstractmethod
    def max_step(self, problem: Problem, *, alpha: float, K: int = 1) -> float:
        """The largest admissible eta_local (eta_global = 1)."""

    @abstractmethod
    def transient(self, problem: Problem, *, alpha: float, K: int, eta: float, T: int) -> float:
        """The part of the bound that vanishes with T."""

    @abstractmethod
    def transient_rounds(self, problem: Problem, *, alpha: float, K: int, eta: float, eps: float) -> float:
        """The real T at which the transient equals eps."""

    def floor(self, problem: Problem, *, alpha: float, K: int, eta: float) -> float:
        """The part of the bound that stays."""
        return 0.0

    def floor_step(self, problem: Problem, *, alpha: float, K: int, eps: float) -> float:
        """A step whose floor is at most eps: floors grow at least as eta²."""
        top = self.max_step(problem, alpha=alpha, K=K)
        floor = self.floor(problem, alpha=alpha, K=K, eta=top)
        return top if floor <= eps else top * math.sqrt(eps / floor)

    def check(self, problem: Problem, *, alpha: float, K: int) -> None:
        """Raise TheoryError where a precondition fails."""
        demand(alpha >= 0 and math.isfinite(alpha), f"alpha must be a finite number >= 0, got {alpha}")
        demand(K >= 1, f"K counts local steps and is at least 1, got {K}")

    def bound(self, problem: Problem, *, alpha: float, K: int = 1, eta: float, T: int) -> float:
        """The theorem's right-hand side after T rounds with step ``eta``."""
        self.check(problem, alpha=alpha, K=K)
        top = self.max_step(problem, alpha=alpha, K=K)
        demand(
            0 < eta <= top * _SLACK, f"{self.label} needs 0 < eta_local <= {top:.6g}, got {eta:.6g}; lower eta_local"
        )
        demand(T >= 0, f"T counts rounds, got {T}")
        floor = self.floor(problem, alpha=alpha, K=K, eta=eta)
        return self.transient(problem, alpha=alpha, K=K, eta=eta, T=T) + floor

    def rounds(self, problem: Problem, *, alpha: float, K: int = 1, eps: float) -> Schedule:
        """The step and the T that bring the bound to eps."""
        self.check(problem, alpha=alpha, K=K)
        demand(0 < eps < math.inf, f"the target accuracy must be a positive number, got {eps}")
        top = self.max_step(problem, alpha=alpha, K=K)
        eta = self.best_step(problem, alpha=alpha, K=K, eps=eps)
        left = eps - self.floor(problem, alpha=alpha, K=K, eta=eta)
        T = max(1, math.ceil(self.transient_rounds(problem, alpha=alpha, K=K, eta=eta, eps=left)))
        binds = "largest admissible step" if eta >= 0.99 * top else self.trade_off(problem, K=K)
        reached = self.bound(problem, alpha=alpha, K=K, eta=eta, T=T)
        return Schedule(eta_local=eta, eta_global=1.0, K=K, T=T, bound=reached, binds=binds)

    def best_step(self, problem: Problem, *, alpha: float, K: int, eps: float) -> float:
        """As the paper: half of eps for the floor."""
        return min(self.max_step(problem, alpha=alpha, K=K), self.floor_step(problem, alpha=alpha, K=K, eps=eps / 2))

    def trade_off(self, problem: Problem, *, K: int) -> str:
        """What keeps the step below the largest admissible one."""
        return "heterogeneity floor" if K > 1 and problem.sigma_star else "variance of the sketch"


def least_rounds(statement: Theorem, problem: Problem, *, alpha: float, K: int, eps: float) -> float:
    """The step with the fewest rounds to eps: golden section on log eta (T(eta) falls, then rises to the floor)."""

    def rounds(log_eta: float) -> float:
        eta = math.exp(log_eta)
        left = eps - statement.floor(problem, alpha=alpha, K=K, eta=eta)
        return statement.transient_rounds(problem, alpha=alpha, K=K, eta=eta, eps=left) if left > 0 else math.inf

    safe = statement.floor_step(problem, alpha=alpha, K=K, eps=eps / 8)
    high = math.log(statement.max_step(problem, alpha=alpha, K=K))
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
