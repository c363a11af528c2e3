"""The communication corollaries, executed: the step and the rounds of their proofs reach epsilon, within the bits claimed.

``thm:communication_kstep_convex2`` (strongly convex) takes K = 1, eta = min{1/(8(1+alpha)L), sqrt(mu eps/2)/(2 L sigma)}
and T = log(L D²/eps)/(mu eta); ``thm:communication_kstep_convex`` takes K eta = min{1/(8(1+alpha)L), sqrt(eps/L)/(8
sigma)} and T = 8 D²/(eta K eps). A message is b numbers. The claimed O(·) is checked with the constant of that
calculation: N b T is at most 8 b (1+alpha)/d (strongly convex) or 64 b (1+alpha)/d (convex) times the stated maximum,
read with d replaced by d/(1+alpha) in its second term, which is what the proof arrives at before it takes alpha = O(d).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from desketch.theory import Problem, embedding
from desketch.verify.moments import expected_gaps
from desketch.verify.objectives import Quadratic
from desketch.verify.rows import Row, exact_row

__all__ = ["Recipe", "check_communication", "check_linear_rate", "recipe"]


@dataclass(frozen=True)
class Recipe:
    """The step and the rounds that a corollary's proof takes for epsilon."""

    label: str
    K: int
    eta: float
    T: int


def recipe(problem: Problem, *, alpha: float, K: int, eps: float) -> Recipe:
    """The choice of the proof; the strongly convex one always takes K = 1."""
    L, D2, sigma = problem.L, problem.distance**2, problem.sigma_star
    top = 1 / (8 * (1 + alpha) * L)
    if problem.mu:
        eta = min(top, math.sqrt(problem.mu * eps / 2) / (2 * L * sigma) if sigma else math.inf)
        return Recipe("thm:communication_kstep_convex2", 1, eta, math.ceil(math.log(L * D2 / eps) / (problem.mu * eta)))
    step = min(top, math.sqrt(eps / L) / (8 * sigma) if sigma else math.inf)
    return Recipe("thm:communication_kstep_convex", K, step / K, math.ceil(8 * D2 / (step * eps)))


def check_communication(
    objective: Quadratic, families: tuple[str, ...], *, b: int, K: int, share: float
) -> Iterator[Row]:
    """The recipe for eps = share · L D²/2 on a quadratic, by exact expectations, and its bits."""
    problem, d = objective.problem, len(objective.w0)
    eps = share * problem.L * problem.distance**2 / 2
    for family in families:
        alpha = embedding(family, d=d, b=b).alpha
        plan = recipe(problem, alpha=alpha, K=K, eps=eps)
        setting = f"{objective.setting}, K={plan.K}, eps={share:g} L D^2/2, T={plan.T}"
        gap = _gap(objective, family, b=b, plan=plan)
        yield exact_row(plan.label, setting, family, np.array([gap]), np.array([eps]))
        numbers, claimed = objective.N * b * plan.T, _claimed(problem, N=objective.N, d=d, b=b, alpha=alpha, eps=eps)
        yield exact_row(plan.label, f"{setting}: numbers sent", family, np.array([numbers]), np.array([claimed]))


def check_linear_rate(objective: Quadratic, family: str, *, shares: tuple[float, ...] = (1.0, 10.0)) -> Iterator[Row]:
    """The remark that T grows with log(1/eps) alone for eps >= sigma²/(mu d²), at b = 1, where alpha is about d."""
    problem, d = objective.problem, len(objective.w0)
    alpha, mu = embedding(family, d=d, b=1).alpha, problem.mu or 0.0
    for share in shares:
        eps = share * problem.sigma_star**2 / (mu * d**2)
        plan = recipe(problem, alpha=alpha, K=1, eps=eps)
        linear = math.ceil(8 * (1 + alpha) * problem.L / mu * math.log(problem.L * problem.distance**2 / eps))
        setting = f"{objective.setting}, b=1, eps={share:g} sigma^2/(mu d^2), T={plan.T}"
        gap = _gap(objective, family, b=1, plan=plan)
        yield exact_row("remark on linear rates", setting, family, np.array([gap]), np.array([eps]))
        yield exact_row("remark on linear rates", f"{setting}: T", family, np.array([plan.T]), np.array([linear]))


def _gap(objective: Quadratic, family: str, *, b: int, plan: Recipe) -> float:
    """E f - f* at what the corollary outputs: w^T, or w̄^T where f is merely convex."""
    gaps = expected_gaps(objective, (family,), b=b, eta=np.array([plan.eta]), K=plan.K, rounds=plan.T)
    return float((gaps.last if objective.problem.mu else gaps.local_mean)[-1, 0])


def _claimed(problem: Problem, *, N: int, d: int, b: int, alpha: float, eps: float) -> float:
    """The corollary's numbers with the constant its proof gives, one round more for the rounding up of T."""
    L, D2, sigma, wide = problem.L, problem.distance**2, problem.sigma_star, 1 + alpha
    if problem.mu:
        most = max(d, d / wide * math.sqrt(sigma**2 / (problem.mu * eps)))
        return 8 * b * wide / d * L * N / problem.mu * most * math.log(L * D2 / eps) + N * b
    return 64 * b * wide / d * D2 * N * max(L * d / eps, d / wide * sigma * math.sqrt(L) / eps**1.5) + N * b
