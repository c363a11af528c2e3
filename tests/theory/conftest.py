"""Algorithm 1 with noise on objectives whose constants are exact, for many independent runs at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest

from desketch.keys import Key
from desketch.sketches import draw
from desketch.theory import Problem
from desketch.theory.noise import Noise
from desketch.wire import CODEC_TABLE, Header

D, B, N, SEEDS, ROUNDS = 16, 4, 4, 48, 80
KEY = Key(7).fold_in("noise")


@lru_cache(maxsize=8)
def sketches(family: str, b: int = B, rounds: int = ROUNDS) -> np.ndarray:
    """R of every round and run, drawn by the library: (rounds, seeds, b, d)."""
    eye = np.eye(b, dtype=np.float32)
    keys = ((KEY.fold_in(family, s, t) for s in range(SEEDS)) for t in range(rounds))
    return np.stack([np.stack([draw(family, d=D, b=b, key=k).desketch(eye) for k in row]) for row in keys])


def haar(rng: np.random.Generator, n: int, b: int) -> np.ndarray:
    """Uniformly random rotations: (n, b, b)."""
    q, r = np.linalg.qr(rng.normal(size=(n, b, b)))
    return q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]


def code(name: str, values: np.ndarray, tag: tuple[object, ...]) -> np.ndarray:
    """Encode and decode rows with independent randomness; ``sign1`` by its contract, a uniform rotation per message."""
    flat = values.reshape(-1, values.shape[-1])
    b = flat.shape[1]
    if name == "sign1":
        Q = haar(np.random.default_rng(crc32(repr(tag).encode())), len(flat), b)
        x = np.einsum("nij,nj->ni", Q, flat)
        scale = (x**2).sum(1) / np.maximum(np.abs(x).sum(1), 1e-300)
        return np.einsum("nij,ni->nj", Q, scale[:, None] * np.sign(x)).reshape(values.shape)
    header = Header(run=0, round=1, family="srht", d=max(D, b), b=b, key=KEY, codec=name, kind="update")
    rounding = [KEY.fold_in(*map(str, tag), i) for i in range(len(flat))]
    payload = CODEC_TABLE[name].encode(np.ascontiguousarray(flat, dtype=np.float32), header, rounding)
    return CODEC_TABLE[name].decode(payload, header).astype(np.float64).reshape(values.shape)


@dataclass(frozen=True)
class Objective:
    """N clients' gradients (N, S, D) -> (N, S, D), the gap and gradient of the mean, and the constants."""

    name: str
    gradients: Callable[[np.ndarray], np.ndarray]
    gap: Callable[[np.ndarray], np.ndarray]
    problem: Problem
    w0: np.ndarray


def quadratic(*, mu: float, het: float, same_hessians: bool) -> Objective:
    """f_c = (w - a_c)ᵀH_c(w - a_c)/2 with spectra in [mu, 1]; mu = 0 leaves flat directions, in which nobody pulls."""
    rng = np.random.default_rng(11)
    spectrum = np.linspace(mu, 1.0, D) if mu != 1 else np.ones(D)
    H = []
    for _ in range(N):
        order = np.arange(D) if same_hessians else rng.permutation(D)
        H.append(np.diag(spectrum[order]))
    H = np.stack(H)
    a = rng.normal(size=(N, D))
    a -= a.mean(0)
    mean = H.mean(0)
    w_star = np.linalg.lstsq(mean, np.einsum("cij,cj->i", H, a) / N, rcond=None)[0]
    size = np.sqrt((np.einsum("cij,cj->ci", H, w_star - a) ** 2).sum(1).mean())
    a = a * het / size
    w_star = w_star * het / size
    w0 = w_star + rng.normal(size=D) / np.sqrt(D)
    error = w0 - w_star
    problem = Problem(
        L=1.0,
        mu=mu,
        sigma_star=het,
        distance=float(np.linalg.norm(error)),
        gap=float(error @ mean @ error / 2),
        zeta=het if same_hessians else None,
    )
    return Objective(
        f"quadratic mu={mu} het={het}",
        lambda U: np.einsum("cij,csj->csi", H, U - a[:, None]),
        lambda W: np.einsum("si,ij,sj->s", W - w_star, mean, W - w_star) / 2,
        problem,
        w0,
    )


def non_convex(het: float) -> Objective:
    """f_c = sum_i log(1 + (w_i - a_ci)²)/2: slopes at most 1/2, curvature in [-1/8, 1], and f >= 0."""
    rng = np.random.default_rng(12)
    a = het * rng.normal(size=(N, D))
    w0 = 2 * rng.normal(size=D)
    values = lambda W: np.log1p((W - a[:, None]) ** 2).sum(2).mean(0) / 2  # noqa: E731
    slope = np.sqrt(D) / 2
    problem = Problem(L=1.0, mu=None, gap=float(values(w0[None])[0]), G=slope)
    return Objective("non-convex", lambda U: (U - a[:, None]) / (1 + (U - a[:, None]) ** 2), values, problem, w0)


@dataclass(frozen=True)
class Trace:
    """Per round and run: f at the last iterate, at the two means, |∇f|²."""

    last: np.ndarray
    round_mean: np.ndarray
    local_mean: np.ndarray
    gradient: np.ndarray


def simulate(objective: Objective, noise: Noise, *, eta: float, K: int, family: str, codec: str, b: int = B) -> Trace:
    """Rounds with the noise that ``noise`` describes: its codec is real, the rest Gaussian of exactly that energy."""
    rng = np.random.default_rng(5)
    R = sketches(family, b)
    W = np.tile(objective.w0, (SEEDS, 1))
    heard = noise.clients
    round_sum, local_sum, rows = W.copy(), np.zeros_like(W), []
    for t in range(ROUNDS):
        U = np.tile(W, (N, 1, 1))
        for _ in range(K):
            local_sum += U.mean(0)
            xi = noise.gradient / np.sqrt(D) * rng.normal(size=U.shape)
            U = U - eta * (objective.gradients(U) + xi)
        delta = U - W
        if heard < N:
            pick = rng.permuted(np.tile(np.arange(N)[:, None], (1, SEEDS)), axis=0)[:heard]
            delta = delta[pick, np.arange(SEEDS)]
        s = np.einsum("sbd,csd->csb", R[t], delta)
        y = (code(codec, s, ("up", t)) if noise.uplink else s).mean(0)
        y = y + eta * K * noise.release / np.sqrt(D) * rng.normal(size=y.shape)
        y = code(codec, y, ("down", t)) if noise.downlink else y
        W = W + np.einsum("sbd,sb->sd", R[t], y)
        round_sum += W
        mean_gradient = objective.gradients(np.tile(W, (N, 1, 1))).mean(0)
        means = objective.gap(round_sum / (t + 2)), objective.gap(local_sum / (K * (t + 1)))
        rows.append((objective.gap(W), *means, (mean_gradient**2).sum(1)))
    return Trace(*(np.stack(column) for column in zip(*rows, strict=True)))


@pytest.fixture(scope="session")
def bed() -> SimpleNamespace:
    """The parts of this file that tests use."""
    return SimpleNamespace(D=D, B=B, N=N, ROUNDS=ROUNDS, code=code, simulate=simulate)


@pytest.fixture(scope="session")
def objectives() -> dict[str, Objective]:
    """By name."""
    return {
        "strongly convex": quadratic(mu=0.2, het=1.0, same_hessians=False),
        "same Hessians": quadratic(mu=0.2, het=1.0, same_hessians=True),
        "isotropic": quadratic(mu=1.0, het=1.0, same_hessians=True),
        "convex": quadratic(mu=0.0, het=1.0, same_hessians=False),
        "non-convex": non_convex(1.0),
    }
