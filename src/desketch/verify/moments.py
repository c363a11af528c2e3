"""Exact expectations on quadratics: no sampling, so no tolerance.

On quadratics a round is affine, e⁺ = e - M (P e - q) with e = w - w* and M = RᵀR, and so is the mean of its local
iterates, x = A e + z. The first two moments of e, and of the sum S of all x so far, obey linear recursions that need
only E[M Y M], known in closed form for every family. The bounds can be compared with the true E f(w^T) - f* and
E f(w̄^T) - f* for as many rounds as one likes, where sampling would miss the heavy tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from desketch.theory import embedding
from desketch.verify.objectives import Quadratic

__all__ = ["Expected", "expected_gaps", "second_moment"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Expected:
    """Exact expectations, (rounds + 1, families); row t is after t rounds."""

    last: Array  # E f(w^t) - f*
    local_mean: Array  # E f(w̄^t) - f*, w̄^t the mean over clients, local steps and rounds 1..t; row 0 repeats the start

    @property
    def round_mean(self) -> Array:
        """E f(mean of w^0..w^t) - f* when K = 1: the local iterates of rounds 1..t+1 are w^0..w^t."""
        return self.local_mean[1:]


def second_moment(family: str, *, d: int, b: int) -> Callable[[Array], Array]:
    """Y -> E[RᵀR Y RᵀR] for symmetric Y."""
    kept, trace, diagonal = _sandwich(family, d=d, b=b)
    return lambda Y: kept * Y + trace * np.trace(Y) * np.eye(d) + diagonal * np.diag(np.diag(Y))


def _sandwich(family: str, *, d: int, b: int) -> tuple[float, float, float]:
    """E[M Y M] = kept Y + trace tr(Y) I + diagonal diag(Y)."""
    p = embedding(family, d=d, b=b).column_ip
    if family == "uniform":
        off = d * (b - 1) / (b * (d - 1))
        return off, 0.0, d / b - off
    return 1 + p, p, 0.0 if family == "gaussian" else -2 * p  # the others have columns of norm exactly one


def expected_gaps(
    objective: Quadratic, families: tuple[str, ...], *, b: int, eta: Array, K: int, rounds: int
) -> Expected:
    """Exact gaps of every family, each with its own step ``eta`` (families,)."""
    d, F = len(objective.w0), len(families)
    H, P, q, A, z = objective.H.mean(0), *_affine(objective, eta, K)
    kept, trace, diagonal = np.array([_sandwich(f, d=d, b=b) for f in families]).T[:, :, None, None]
    eye, stay = np.eye(d), np.eye(d) - P
    m = np.repeat((objective.w0 - objective.w_star)[None], F, 0)  # E e
    M2 = _outer(m, m)  # E e eᵀ
    s, SS, C = np.zeros((F, d)), np.zeros((F, d, d)), np.zeros((F, d, d))  # E S, E S Sᵀ, E S eᵀ
    last, local_mean = [np.sum(H * M2, (1, 2)) / 2], [np.sum(H * M2, (1, 2)) / 2]
    for t in range(1, rounds + 1):
        AM = A @ M2 + _outer(z, m)  # E x eᵀ
        x = _apply(A, m) + z
        cross = C @ _T(A) + _outer(s, z)  # E S xᵀ
        SS = SS + cross + _T(cross) + AM @ _T(A) + _outer(x, z)
        s, C = s + x, (C + AM) @ _T(stay) + _outer(s + x, q)
        v = _apply(P, m) - q
        ev = M2 @ _T(P) - _outer(m, q)  # E e vᵀ, v = P e - q
        vv = P @ ev - _outer(q, v)
        moved = kept * vv + trace * np.trace(vv, axis1=1, axis2=2)[:, None, None] * eye + diagonal * vv * eye
        M2, m = _symmetric(M2 - ev - _T(ev) + moved), m - v
        last.append(np.sum(H * M2, (1, 2)) / 2)
        local_mean.append(np.sum(H * SS, (1, 2)) / (2 * t * t))
    return Expected(np.stack(last), np.stack(local_mean))


def _affine(objective: Quadratic, eta: Array, K: int) -> tuple[Array, Array, Array, Array]:
    """P, q, A and z of every family: K steps move e by -(P e - q); the mean of its K local iterates is A e + z."""
    d = len(objective.w0)
    shrink = np.eye(d) - eta[:, None, None, None] * objective.H  # (families, clients, d, d)
    powers = [np.broadcast_to(np.eye(d), shrink.shape)]
    for _ in range(K):
        powers.append(powers[-1] @ shrink)
    target = objective.a - objective.w_star
    A_c = np.mean(powers[:K], axis=0)
    P_c = np.eye(d) - powers[K]
    z_c = np.einsum("fcij,cj->fci", np.eye(d) - A_c, target)
    return P_c.mean(1), np.einsum("fcij,cj->fi", P_c, target) / len(target), A_c.mean(1), z_c.mean(1)


def _symmetric(Y: Array) -> Array:
    """Drop the antisymmetric rounding error, which the recursion would amplify."""
    return (Y + _T(Y)) / 2


def _T(Y: Array) -> Array:
    return Y.transpose(0, 2, 1)


def _apply(Y: Array, v: Array) -> Array:
    return (Y @ v[:, :, None])[:, :, 0]


def _outer(u: Array, v: Array) -> Array:
    return u[:, :, None] * v[:, None, :]
