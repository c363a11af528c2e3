"""Objectives with known constants: quadratics, ridge, regularised logistic regression, a smooth non-convex one.

Every objective is f = (1/N) sum_c f_c with arrays laid out (clients, batch, d), so that all runs of an experiment
advance in one matrix product. L and mu are exact extreme eigenvalues (or their closed-form bounds), w* is solved to
machine precision, and sigma_star² = (1/N) sum_c |∇f_c(w*)|² follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from desketch.theory import Problem

__all__ = ["Objective", "Quadratic", "decaying_quadratic", "objectives"]

Array = np.ndarray[Any, np.dtype[Any]]
_N, _ROWS = 4, 30  # clients, examples each


@dataclass(frozen=True)
class Objective(ABC):
    """f, its clients' gradients, its constants, and where every run starts."""

    name: str
    heterogeneous: bool
    w0: Array
    problem: Problem

    @abstractmethod
    def gradients(self, U: Array) -> Array:
        """∇f_c at ``U[c]``: (N, B, d) -> (N, B, d)."""

    @abstractmethod
    def values(self, W: Array) -> Array:
        """Sub-optimality f - f* of every row: (B, d) -> (B,)."""

    def gradient(self, W: Array) -> Array:
        """∇f at every row: (B, d) -> (B, d)."""
        return self.gradients(np.broadcast_to(W, (_N, *W.shape))).mean(0)

    @property
    def setting(self) -> str:
        """Name and heterogeneity, as printed."""
        return f"{self.name}, {'heterogeneous' if self.heterogeneous else 'homogeneous'}"


@dataclass(frozen=True)
class Quadratic(Objective):
    """f_c(w) = (w - a_c)ᵀ H_c (w - a_c)/2; ridge regression is one."""

    H: Array  # (N, d, d)
    a: Array  # (N, d)
    w_star: Array

    @classmethod
    def make(cls, name: str, *, H: Array, a: Array, w0: Array, heterogeneous: bool) -> Quadratic:
        """Solve for w* and read the constants off the spectra."""
        spectra = np.linalg.eigvalsh(H)
        w_star = np.linalg.solve(H.mean(0), np.einsum("cij,cj->i", H, a) / len(H))
        residual = np.einsum("cij,cj->ci", H, w_star - a)
        error = w0 - w_star
        problem = Problem(
            L=float(spectra.max()),
            mu=float(spectra.min()),
            sigma_star=float(np.sqrt((residual**2).sum(1).mean())),
            distance=float(np.linalg.norm(error)),
            gap=float(error @ H.mean(0) @ error / 2),
        )
        return cls(name, heterogeneous, w0, problem, H, a, w_star)

    def gradients(self, U: Array) -> Array:
        """H_c (u - a_c)."""
        return (U - self.a[:, None]) @ self.H

    def values(self, W: Array) -> Array:
        """(w - w*)ᵀ H (w - w*)/2 with H the mean of the H_c."""
        E = W - self.w_star
        return np.einsum("bi,ij,bj->b", E, self.H.mean(0), E) / 2


@dataclass(frozen=True)
class Logistic(Objective):
    """f_c(w) = mean_j log(1 + exp(-y_j x_jᵀw)) + (mu/2)|w|²; L = λ_max(XᵀX/n)/4 + mu."""

    X: Array  # (N, rows, d), already multiplied by the labels
    reg: float
    f_star: float

    @classmethod
    def make(cls, *, X: Array, w0: Array, reg: float, heterogeneous: bool) -> Logistic:
        """Find w* by Newton's method."""
        smooth = float(max(np.linalg.eigvalsh(x.T @ x / len(x)).max() for x in X)) / 4 + reg
        stacked, w = X.reshape(-1, X.shape[-1]), np.zeros(X.shape[-1])
        for _ in range(50):
            s = 1 / (1 + np.exp(stacked @ w))
            gradient = -stacked.T @ s / len(stacked) + reg * w
            hessian = (stacked * (s * (1 - s))[:, None]).T @ stacked / len(stacked) + reg * np.eye(len(w))
            w = w - np.linalg.solve(hessian, gradient)
        draft = cls("logistic", heterogeneous, w0, Problem(L=smooth), X, reg, 0.0)
        at_star = draft.gradients(np.broadcast_to(w, (len(X), 1, len(w))))[:, 0]
        f_star = float(draft.values(w[None])[0])
        problem = Problem(
            L=smooth,
            mu=reg,
            sigma_star=float(np.sqrt((at_star**2).sum(1).mean())),
            distance=float(np.linalg.norm(w0 - w)),
            gap=float(draft.values(w0[None])[0]) - f_star,
        )
        return cls("logistic", heterogeneous, w0, problem, X, reg, f_star)

    def gradients(self, U: Array) -> Array:
        margins = U @ self.X.transpose(0, 2, 1)
        return -(1 / (1 + np.exp(margins))) @ self.X / self.X.shape[1] + self.reg * U

    def values(self, W: Array) -> Array:
        losses = np.logaddexp(0, -(W @ self.X.transpose(0, 2, 1))).mean((0, 2))
        return losses + self.reg / 2 * (W**2).sum(1) - self.f_star


@dataclass(frozen=True)
class Robust(Objective):
    """f_c(w) = mean_j r²/(1 + r²), r = x_jᵀw - y_j: not convex, |ρ''| <= 2, |ρ'| <= 3√3/8, inf f >= 0."""

    X: Array
    y: Array  # (N, rows)

    @classmethod
    def make(cls, *, X: Array, y: Array, w0: Array, heterogeneous: bool) -> Robust:
        """L = 2 λ_max(XᵀX/n), G = (3√3/8) mean|x_j|, and f* bounded below by 0."""
        smooth = 2 * float(max(np.linalg.eigvalsh(x.T @ x / len(x)).max() for x in X))
        G = 3 * np.sqrt(3) / 8 * float(np.linalg.norm(X, axis=2).mean(1).max())
        draft = cls("robust", heterogeneous, w0, Problem(L=smooth), X, y)
        problem = Problem(L=smooth, mu=None, gap=float(draft.values(w0[None])[0]), G=float(G))
        return cls("robust", heterogeneous, w0, problem, X, y)

    def gradients(self, U: Array) -> Array:
        r = U @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return (2 * r / (1 + r**2) ** 2) @ self.X / self.X.shape[1]

    def values(self, W: Array) -> Array:
        r = W @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return (r**2 / (1 + r**2)).mean((0, 2))


def _spectrum(rng: np.random.Generator, eigenvalues: Array) -> Array:
    Q = np.linalg.qr(rng.standard_normal((len(eigenvalues), len(eigenvalues))))[0]
    return (Q * eigenvalues) @ Q.T


def _build(d: int, *, heterogeneous: bool, seed: int) -> tuple[Objective, ...]:
    rng = np.random.default_rng(seed)

    def per_client(make: Any) -> Array:
        first = make()
        return np.stack([first] + [make() if heterogeneous else first for _ in range(_N - 1)])

    eigenvalues = np.geomspace(0.1, 1.0, d)
    rows = per_client(lambda: rng.standard_normal((_ROWS, d)) / np.sqrt(d))
    truth = per_client(lambda: rng.standard_normal(d))
    targets = np.einsum("cnd,cd->cn", rows, truth)
    grams = rows.transpose(0, 2, 1) @ rows / _ROWS + 0.1 * np.eye(d)
    ridge_a = np.linalg.solve(grams, (rows * targets[:, :, None]).mean(1)[:, :, None])[:, :, 0]
    labels = np.where(targets + 0.5 * rng.standard_normal(_ROWS) > 0, 1.0, -1.0)
    w0, same = 3 * rng.standard_normal(d) / np.sqrt(d), {"heterogeneous": heterogeneous}
    return (
        Quadratic.make("isotropic", H=np.stack([np.eye(d)] * _N), a=truth, w0=w0, **same),
        Quadratic.make("quadratic", H=per_client(lambda: _spectrum(rng, eigenvalues)), a=truth, w0=w0, **same),
        Quadratic.make("ridge", H=grams, a=ridge_a, w0=w0, **same),
        Logistic.make(X=rows * labels[:, :, None], w0=w0, reg=0.05, **same),
        Robust.make(X=rows, y=targets, w0=w0, **same),
    )


def objectives(d: int, *, seed: int = 0) -> tuple[Objective, ...]:
    """Every objective with identical clients, then with different ones."""
    return (*_build(d, heterogeneous=False, seed=seed), *_build(d, heterogeneous=True, seed=seed + 1))


def decaying_quadratic(d: int) -> Quadratic:
    """A rotated quadratic whose eigenvalues fall by 10^4: tr(H)/λ_max is far below d."""
    rng = np.random.default_rng(5)
    H = np.stack([_spectrum(rng, np.geomspace(1e-4, 1.0, d))] * _N)
    a = np.zeros((_N, d))
    return Quadratic.make("decaying quadratic", H=H, a=a, w0=rng.standard_normal(d), heterogeneous=False)
