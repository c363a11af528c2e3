"""Objectives with known constants: strongly convex, merely convex (mu = 0) and non-convex ones.

Every objective is f = (1/N) sum_c f_c with arrays laid out (clients, batch, d), so that all runs of an experiment
advance in one matrix product. L and mu are exact extreme eigenvalues (or their closed-form bounds), w* is solved to
machine precision (the minimiser nearest to w⁰ where there are many), and sigma_star² = (1/N) sum_c |∇f_c(w*)|² follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from desketch.theory import Problem

__all__ = ["Diagonal", "KnownObjective", "Quadratic", "decaying_quadratic", "large_objectives", "objectives"]

Array = np.ndarray[Any, np.dtype[Any]]
_N, _ROWS = 4, 30  # clients, examples each
_SINGULAR = 1e-10  # eigenvalues below this part of the largest count as zero


@dataclass(frozen=True)
class KnownObjective(ABC):
    """f, its clients' gradients, its constants, and where every run starts."""

    name: str
    heterogeneous: bool
    w0: Array
    problem: Problem
    w_star: Array | None  # None where no minimiser is known

    @abstractmethod
    def gradients(self, U: Array) -> Array:
        """∇f_c at ``U[c]``: (N, B, d) -> (N, B, d)."""

    @abstractmethod
    def values(self, W: Array) -> Array:
        """Sub-optimality f - f* of every row: (B, d) -> (B,)."""

    def gradient(self, W: Array) -> Array:
        """∇f at every row: (B, d) -> (B, d)."""
        return self.gradients(np.broadcast_to(W, (self.N, *W.shape))).mean(0)

    @property
    def N(self) -> int:
        """Clients."""
        return _N

    @property
    def setting(self) -> str:
        """Name and heterogeneity, as printed."""
        return f"{self.name}, {'heterogeneous' if self.heterogeneous else 'homogeneous'}"


@dataclass(frozen=True)
class Quadratic(KnownObjective):
    """f_c(w) = (w - a_c)ᵀ H_c (w - a_c)/2; ridge regression and least squares are two."""

    H: Array  # (N, d, d)
    a: Array  # (N, d)
    w_star: Array

    @classmethod
    def make(cls, name: str, *, H: Array, a: Array, w0: Array, heterogeneous: bool) -> Quadratic:
        """Solve for the w* nearest to w⁰ and read the constants off the spectra."""
        spectra = np.linalg.eigvalsh(H)
        slope = np.einsum("cij,cj->i", H, w0 - a) / len(H)
        w_star = w0 - np.linalg.pinv(H.mean(0), rcond=_SINGULAR, hermitian=True) @ slope
        residual = np.einsum("cij,cj->ci", H, w_star - a)
        error = w0 - w_star
        problem = Problem(
            L=float(spectra.max()),
            mu=float(spectra.min()) if spectra.min() > _SINGULAR * spectra.max() else 0.0,
            sigma_star=float(np.sqrt((residual**2).sum(1).mean())),
            distance=float(np.linalg.norm(error)),
            gap=float(error @ H.mean(0) @ error / 2),
        )
        return cls(name, heterogeneous, w0, problem, w_star, H, a)

    def gradients(self, U: Array) -> Array:
        """H_c (u - a_c)."""
        return (U - self.a[:, None]) @ self.H

    def values(self, W: Array) -> Array:
        """(w - w*)ᵀ H (w - w*)/2 with H the mean of the H_c."""
        E = W - self.w_star
        return ((E @ self.H.mean(0)) * E).sum(-1) / 2


@dataclass(frozen=True)
class Diagonal(KnownObjective):
    """f_c(w) = sum_i h_i (w_i - a_ci)²/2: a quadratic whose gradient costs O(d), for the sizes that are shipped."""

    h: Array  # (d,)
    a: Array  # (N, d)
    w_star: Array

    @classmethod
    def make(cls, name: str, *, h: Array, a: Array, w0: Array, heterogeneous: bool) -> Diagonal:
        """w* is the mean of the a_c where h > 0, and w⁰ where f is flat."""
        w_star = np.where(h > 0, a.mean(0), w0)
        problem = Problem(
            L=float(h.max()),
            mu=float(h.min()),
            sigma_star=float(np.sqrt(((h * (w_star - a)) ** 2).sum(1).mean())),
            distance=float(np.linalg.norm(w0 - w_star)),
            gap=float((h * (w0 - w_star) ** 2).sum() / 2),
        )
        return cls(name, heterogeneous, w0, problem, w_star, h, a)

    def gradients(self, U: Array) -> Array:
        """H (u - a_c)."""
        return (U - self.a[:, None]) * self.h

    def values(self, W: Array) -> Array:
        """sum_i h_i (w_i - w*_i)²/2."""
        return (self.h * (W - self.w_star) ** 2).sum(-1) / 2


@dataclass(frozen=True)
class Residuals(KnownObjective):
    """f_c(w) = mean_j ρ(x_jᵀw - y_j) + (reg/2)|w|² for a convex ρ with 0 < ρ'' <= ``bend``."""

    X: Array  # (N, rows, d)
    y: Array  # (N, rows)
    reg: float
    f_star: float
    w_star: Array
    bend: ClassVar[float]

    @abstractmethod
    def loss(self, r: Array) -> Array:
        """ρ."""

    @abstractmethod
    def slope(self, r: Array) -> Array:
        """ρ'."""

    @abstractmethod
    def curvature(self, r: Array) -> Array:
        """ρ''."""

    @classmethod
    def make(cls, name: str, *, X: Array, y: Array, w0: Array, reg: float, heterogeneous: bool) -> Residuals:
        """L = bend λ_max(XᵀX/n) + reg, mu = reg, and w* by Newton's method."""
        smooth = cls.bend * float(max(np.linalg.norm(x, 2) ** 2 / len(x) for x in X)) + reg
        draft = cls(name, heterogeneous, w0, Problem(L=smooth), w0, X, y, reg, 0.0)
        w_star = draft._newton(w0)
        at_star = draft.gradients(np.broadcast_to(w_star, (len(X), 1, len(w_star))))[:, 0]
        f_star = float(draft.values(w_star[None])[0])
        problem = Problem(
            L=smooth,
            mu=reg,
            sigma_star=float(np.sqrt((at_star**2).sum(1).mean())),
            distance=float(np.linalg.norm(w0 - w_star)),
            gap=float(draft.values(w0[None])[0]) - f_star,
        )
        return cls(name, heterogeneous, w0, problem, w_star, X, y, reg, f_star)

    def _newton(self, w: Array) -> Array:
        """Newton's method in the span of the data, steps halved while they do not descend."""
        rows, y = self.X.reshape(-1, self.X.shape[-1]), self.y.reshape(-1)
        Q = np.linalg.qr(rows.T)[0]
        rows, v = rows @ Q, Q.T @ w

        def value(v: Array) -> float:
            return float(self.loss(rows @ v - y).mean() + self.reg / 2 * (v @ v))

        for _ in range(60):
            r = rows @ v - y
            gradient = rows.T @ self.slope(r) / len(rows) + self.reg * v
            hessian = (rows * self.curvature(r)[:, None]).T @ rows / len(rows) + self.reg * np.eye(len(v))
            step = np.linalg.pinv(hessian, rcond=_SINGULAR, hermitian=True) @ gradient
            if np.linalg.norm(step) <= 1e-14 * (1 + np.linalg.norm(v)):
                break
            while value(v - step) > value(v) * (1 + 1e-15):
                step = step / 2
            v = v - step
        return Q @ v + (0.0 if self.reg else w - Q @ (Q.T @ w))  # without a regulariser nothing else moves w

    def gradients(self, U: Array) -> Array:
        r = U @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return self.slope(r) @ self.X / self.X.shape[1] + self.reg * U

    def values(self, W: Array) -> Array:
        r = W @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return self.loss(r).mean((0, 2)) + self.reg / 2 * (W**2).sum(1) - self.f_star


class Logistic(Residuals):
    """ρ(r) = log(1 + exp(-r)), the labels multiplied into X and y = 0; mu > 0 comes from the regulariser alone."""

    bend = 0.25

    def loss(self, r: Array) -> Array:
        return np.logaddexp(0, -r)

    def slope(self, r: Array) -> Array:
        return -1 / (1 + np.exp(r))

    def curvature(self, r: Array) -> Array:
        s = 1 / (1 + np.exp(r))
        return s * (1 - s)


class LogCosh(Residuals):
    """ρ(r) = log cosh r, convex with ρ'' falling to 0: mu = 0 however many rows there are."""

    bend = 1.0

    def loss(self, r: Array) -> Array:
        return np.logaddexp(r, -r) - np.log(2)

    def slope(self, r: Array) -> Array:
        return np.tanh(r)

    def curvature(self, r: Array) -> Array:
        return 1 - np.tanh(r) ** 2


@dataclass(frozen=True)
class Robust(KnownObjective):
    """f_c(w) = mean_j r²/(1 + r²), r = x_jᵀw - y_j: not convex, |ρ''| <= 2, |ρ'| <= 3√3/8, inf f >= 0."""

    X: Array
    y: Array  # (N, rows)

    @classmethod
    def make(cls, *, X: Array, y: Array, w0: Array, heterogeneous: bool) -> Robust:
        """L = 2 λ_max(XᵀX/n), G = (3√3/8) mean|x_j|, and f* bounded below by 0."""
        smooth = 2 * float(max(np.linalg.norm(x, 2) ** 2 / len(x) for x in X))
        G = 3 * np.sqrt(3) / 8 * float(np.linalg.norm(X, axis=2).mean(1).max())
        draft = cls("robust", heterogeneous, w0, Problem(L=smooth), None, X, y)
        problem = Problem(L=smooth, mu=None, gap=float(draft.values(w0[None])[0]), G=float(G))
        return cls("robust", heterogeneous, w0, problem, None, X, y)

    def gradients(self, U: Array) -> Array:
        r = U @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return (2 * r / (1 + r**2) ** 2) @ self.X / self.X.shape[1]

    def values(self, W: Array) -> Array:
        r = W @ self.X.transpose(0, 2, 1) - self.y[:, None]
        return (r**2 / (1 + r**2)).mean((0, 2))


def _spectrum(rng: np.random.Generator, eigenvalues: Array) -> Array:
    Q = np.linalg.qr(rng.standard_normal((len(eigenvalues), len(eigenvalues))))[0]
    return (Q * eigenvalues) @ Q.T


def _per_client(make: Callable[[], Array], heterogeneous: bool) -> Array:
    first = make()
    return np.stack([first] + [make() if heterogeneous else first for _ in range(_N - 1)])


def _build(d: int, *, heterogeneous: bool, seed: int) -> tuple[KnownObjective, ...]:
    rng = np.random.default_rng(seed)

    def per_client(make: Callable[[], Array]) -> Array:
        return _per_client(make, heterogeneous)

    eigenvalues = np.geomspace(0.1, 1.0, d)
    rows = per_client(lambda: rng.standard_normal((_ROWS, d)) / np.sqrt(d))
    truth = per_client(lambda: rng.standard_normal(d))
    targets = np.einsum("cnd,cd->cn", rows, truth)
    grams = rows.transpose(0, 2, 1) @ rows / _ROWS + 0.1 * np.eye(d)
    ridge_a = np.linalg.solve(grams, (rows * targets[:, :, None]).mean(1)[:, :, None])[:, :, 0]
    labels = np.where(targets + 0.5 * rng.standard_normal(_ROWS) > 0, 1.0, -1.0)
    w0, same = 3 * rng.standard_normal(d) / np.sqrt(d), {"heterogeneous": heterogeneous}
    flat = np.where(np.arange(d) < d // 2, 0.0, eigenvalues)
    few = rows[:, : d // 2]
    noisy = targets + 0.5 * per_client(lambda: rng.standard_normal(_ROWS))
    zeros = np.zeros_like(targets)
    return (
        Quadratic.make("isotropic", H=np.stack([np.eye(d)] * _N), a=truth, w0=w0, **same),
        Quadratic.make("quadratic", H=per_client(lambda: _spectrum(rng, eigenvalues)), a=truth, w0=w0, **same),
        Quadratic.make("ridge", H=grams, a=ridge_a, w0=w0, **same),
        Logistic.make("logistic", X=rows * labels[:, :, None], y=zeros, w0=w0, reg=0.05, **same),
        Robust.make(X=rows, y=targets, w0=w0, **same),
        Quadratic.make("flat quadratic", H=per_client(lambda: _spectrum(rng, flat)), a=truth, w0=w0, **same),
        Quadratic.make("least squares", H=few.transpose(0, 2, 1) @ few / (d // 2), a=truth, w0=w0, **same),
        LogCosh.make("log-cosh", X=rows, y=noisy, w0=w0, reg=0.0, **same),
    )


def objectives(d: int, *, seed: int = 0) -> tuple[KnownObjective, ...]:
    """Every objective with identical clients, then with different ones; the last three of each have mu = 0."""
    return (*_build(d, heterogeneous=False, seed=seed), *_build(d, heterogeneous=True, seed=seed + 1))


def large_objectives(d: int, *, heterogeneous: bool, seed: int = 2) -> tuple[KnownObjective, ...]:
    """Objectives whose gradients stay cheap at the sizes that are shipped: strongly convex, convex and non-convex."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.standard_normal((_ROWS, d)) / np.sqrt(d)] * _N)  # one design, or d > rows would fit them all
    truth = _per_client(lambda: rng.standard_normal(d), heterogeneous)
    targets = np.einsum("cnd,cd->cn", rows, truth)
    w0, same = 3 * rng.standard_normal(d) / np.sqrt(d), {"heterogeneous": heterogeneous}
    spectrum = rng.permutation(np.geomspace(0.1, 1.0, d))
    flat = np.where(rng.permutation(d) < d // 2, 0.0, spectrum)
    return (
        Diagonal.make("isotropic", h=np.ones(d), a=truth, w0=w0, **same),
        Diagonal.make("diagonal", h=spectrum, a=truth, w0=w0, **same),
        Diagonal.make("flat diagonal", h=flat, a=truth, w0=w0, **same),
        LogCosh.make("log-cosh", X=rows, y=targets, w0=w0, reg=0.0, **same),
        Robust.make(X=rows, y=targets, w0=w0, **same),
    )


def decaying_quadratic(d: int) -> Quadratic:
    """A rotated quadratic whose eigenvalues fall by 10^4: tr(H)/λ_max is far below d."""
    rng = np.random.default_rng(5)
    H = np.stack([_spectrum(rng, np.geomspace(1e-4, 1.0, d))] * _N)
    a = np.zeros((_N, d))
    return Quadratic.make("decaying quadratic", H=H, a=a, w0=rng.standard_normal(d), heterogeneous=False)
