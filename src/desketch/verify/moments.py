"""Exact expectations on quadratics: no sampling, so no tolerance.

On quadratics a round is affine, w⁺ = w - M (P w - q) with M = RᵀR, so the mean and the second moment of w obey linear
recursions that need only E[M A M], known in closed form for every family. The strongly convex bounds can be compared
with the true E f(w^T) - f* for as many rounds as one likes, where sampling would miss the heavy tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from desketch.verify.objectives import Quadratic
from desketch.theory import embedding

__all__ = ["expected_gap", "second_moment"]

Array = np.ndarray[Any, np.dtype[Any]]


def second_moment(family: str, *, d: int, b: int) -> Callable[[Array], Array]:
    """A -> E[RᵀR A RᵀR] for symmetric A."""
    p = embedding(family, d=d, b=b).column_ip
    if family == "uniform":
        off = d * (b - 1) / (b * (d - 1))
        return lambda A: off * A + (d / b - off) * np.diag(np.diag(A))
    kept = 0.0 if family == "gaussian" else 2 * p  # the other families have columns of norm exactly one
    return lambda A: (1 + p) * A + p * np.trace(A) * np.eye(d) - kept * np.diag(np.diag(A))


def expected_gap(objective: Quadratic, family: str, *, b: int, eta: float, K: int, rounds: int) -> Array:
    """E f(w^t) - f* for t = 0..rounds, exactly."""
    d = len(objective.w0)
    H, eye = objective.H.mean(0), np.eye(d)
    P_c = np.stack([eye - np.linalg.matrix_power(eye - eta * h, K) for h in objective.H])
    P, q = P_c.mean(0), np.einsum("cij,cj->i", P_c, objective.a) / len(P_c)
    fixed = np.linalg.solve(P, q)
    shift, mean = fixed - objective.w_star, objective.w0 - fixed
    moment, sandwich = np.outer(mean, mean), second_moment(family, d=d, b=b)
    gaps = []
    for _ in range(rounds + 1):
        gaps.append(np.sum(H * moment) / 2 + shift @ H @ mean + shift @ H @ shift / 2)
        moment = moment - P @ moment - moment @ P.T + sandwich(P @ moment @ P.T)
        mean = mean - P @ mean
    return np.array(gaps)
