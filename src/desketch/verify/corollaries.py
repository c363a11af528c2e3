"""The communication corollaries, executed: the steps and rounds of their proofs reach epsilon within the bits claimed.

``thm:communication_kstep_convex2`` (strongly convex) takes K = 1, eta = min{1/(8(1+alpha)L), sqrt(mu eps/2)/(2 L
sigma)} and T = log(L D²/eps)/(mu eta); ``thm:communication_kstep_convex`` takes K eta = min{1/(8(1+alpha)L),
sqrt(eps/L)/(8 sigma)} and T = 8 D²/(eta K eps). The claimed O(·) is of N b T numbers at alpha = O(d), that is b = 1,
and is checked there with the constants that this choice gives: 16 and 128 times
``theory.communication.order_of_growth``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from desketch.theory import Problem, embedding
from desketch.theory.communication import order_of_growth
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
    """The recipe for eps = share · L D²/2 on a quadratic: it ends below eps, by exact expectations; and its numbers."""
    problem, d, N = objective.problem, len(objective.w0), objective.N
    eps = share * problem.L * problem.distance**2 / 2
    plans = [recipe(problem, alpha=embedding(f, d=d, b=b).alpha, K=K, eps=eps) for f in families]
    most = (16 if problem.mu else 128) * order_of_growth(problem, d=d, N=N, eps=eps) + N  # T is rounded up
    for family, plan, gap in zip(families, plans, _gaps(objective, families, b=b, plans=plans), strict=True):
        setting = f"{objective.setting}, K={plan.K}, eps={share:g} L D^2/2"
        yield exact_row(plan.label, f"{setting}, b={b}, T={plan.T}", family, np.array([gap]), np.array([eps]))
        T = recipe(problem, alpha=embedding(family, d=d, b=1).alpha, K=K, eps=eps).T
        yield exact_row(plan.label, f"{setting}, b=1: numbers sent", family, np.array([N * T]), np.array([most]))


def check_linear_rate(
    objective: Quadratic, families: tuple[str, ...], *, shares: tuple[float, ...] = (1.0, 10.0)
) -> Iterator[Row]:
    """The remark that T grows with log(1/eps) alone for eps >= sigma²/(mu d²), at b = 1, where alpha is about d."""
    problem, d, mu = objective.problem, len(objective.w0), objective.problem.mu or 0.0
    for share in shares:
        eps = share * problem.sigma_star**2 / (mu * d**2)
        alphas = [embedding(f, d=d, b=1).alpha for f in families]
        plans = [recipe(problem, alpha=alpha, K=1, eps=eps) for alpha in alphas]
        gaps = _gaps(objective, families, b=1, plans=plans)
        for family, alpha, plan, gap in zip(families, alphas, plans, gaps, strict=True):
            linear = 8 * (1 + alpha) * problem.L / mu * math.log(problem.L * problem.distance**2 / eps) + 1
            setting = f"{objective.setting}, b=1, eps={share:g} sigma^2/(mu d^2), T={plan.T}"
            yield exact_row("remark on linear rates", setting, family, np.array([gap]), np.array([eps]))
            yield exact_row("remark on linear rates", f"{setting}: T", family, np.array([plan.T]), np.array([linear]))


def _gaps(objective: Quadratic, families: tuple[str, ...], *, b: int, plans: list[Recipe]) -> list[float]:
    """E f - f* at what the corollary outputs: w^T, or w̄^T where f is merely convex."""
    eta, rounds = np.array([plan.eta for plan in plans]), max(plan.T for plan in plans)
    gaps = expected_gaps(objective, families, b=b, eta=eta, K=plans[0].K, rounds=rounds)
    path = gaps.last if objective.problem.mu else gaps.local_mean
    return [float(path[plan.T, f]) for f, plan in enumerate(plans)]
