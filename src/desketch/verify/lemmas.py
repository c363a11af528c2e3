"""The paper's lemmas and numbered inequalities, executed by name on the rounds of simulated runs.

Each is an identity or an inequality between quantities of one round (Definition ``def:convex_terms_2``). ``every``: it
must hold in every run, round and local step. ``mean``: it holds after the expectation over R_t; its right side is known
before R_t is drawn. ``identity``: both sides differ by rounding only. Terms are moved so that both sides are
non-negative; the sense is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from desketch.theory import Problem
from desketch.verify.objectives import KnownObjective
from desketch.verify.rows import Row, every_row, identity_row, one_round_row
from desketch.verify.simulate import Draws, Round, walk

__all__ = ["LEMMAS", "Lemma", "check_lemmas"]

Array = np.ndarray[Any, np.dtype[Any]]
Sides = tuple[Array, Array]


@dataclass(frozen=True)
class Terms:
    """One round of all runs with the quantities the lemmas are written in; arrays end in (runs,) or (runs, d)."""

    objective: KnownObjective
    step: Round
    eta: Array  # (runs,)
    alpha: Array  # (runs,)

    @property
    def problem(self) -> Problem:
        return self.objective.problem

    @property
    def mu(self) -> float:
        return self.problem.mu or 0.0

    @property
    def K(self) -> int:
        return len(self.step.G)

    @cached_property
    def u(self) -> Array:
        """ū^{t,k}, k = 0..K."""
        return self.step.U.mean(1)

    @cached_property
    def g(self) -> Array:
        """ḡ^{t,k}, k = 0..K-1; ḡ^{t,0} = ∇f(w^t)."""
        return self.step.G.mean(1)

    @cached_property
    def total(self) -> Array:
        """sum_k ḡ^{t,k}."""
        return self.g.sum(0)

    @cached_property
    def r(self) -> Array:
        """ū^{t,k} - w*."""
        return self.u - self.objective.w_star

    @cached_property
    def r_next(self) -> Array:
        """w^{t+1} - w*."""
        return self.step.W_next - self.objective.w_star

    @cached_property
    def V(self) -> Array:
        """V^{t,k}, k = 0..K-1."""
        return _square(self.step.U[:-1] - self.u[:-1, None]).mean(1)

    @cached_property
    def phi(self) -> Array:
        """f(ū^{t,k}) - f*, k = 0..K-1."""
        return np.stack([self.objective.values(u) for u in self.u[:-1]])

    @cached_property
    def phi_next(self) -> Array:
        """f(w^{t+1}) - f*."""
        return self.objective.values(self.step.W_next)

    @cached_property
    def h(self) -> Array:
        """h^t = (I - R_tᵀR_t) sum_k ḡ^{t,k}, the noise of the sketch."""
        return self.total - self.step.back(self.total)


@dataclass(frozen=True)
class Lemma:
    """A named statement: when it applies, and its two sides."""

    label: str
    kind: str
    sides: Callable[[Terms], Sides]
    group: str
    part: str = ""
    corrected: bool = False

    def applies(self, objective: KnownObjective, K: int) -> bool:
        """``convex`` needs a minimiser, ``strong`` mu > 0, ``single`` K = 1, ``drift`` K > 1, ``bounded`` a bound G."""
        problem = objective.problem
        convex = problem.mu is not None and objective.w_star is not None
        groups = {
            "convex": convex,
            "drift": convex and K > 1,
            "single": K == 1,
            "single convex": convex and K == 1,
            "single strong": convex and K == 1 and bool(problem.mu),
            "bounded": problem.G is not None,
            "bounded drift": problem.G is not None and K > 1,
        }
        return groups[self.group]


def _update_rule(x: Terms) -> Sides:
    start = np.abs(x.step.U[0] - x.u[0]).max((0, 2))
    steps = np.abs(x.step.U[1:] - x.step.U[:-1] + _wide(x.eta) * x.step.G).max((0, 1, 3))
    closing = x.u[-2] - _wide(x.eta) * x.g[-1] + _wide(x.eta) * x.h
    error = np.maximum.reduce([start, steps, np.abs(x.step.W_next - closing).max(1)])
    return error, np.abs(x.u).max((0, 2)) + x.eta * np.abs(x.h).max(1)


def _gtk1(x: Terms) -> Sides:
    L = x.problem.L
    return _square(x.g), 2 * L**2 * x.V + 4 * L * x.phi


def _gtk2(x: Terms) -> Sides:
    return x.phi + x.mu / 2 * _square(x.r[:-1]), (x.r[:-1] * x.g).sum(-1) + x.problem.L / 2 * x.V


def _vtk_step1(x: Terms) -> Sides:
    energy = np.cumsum(_square(x.step.G).mean(1), 0)
    return x.V[1:], x.eta**2 * x.K * energy[:-1]


def _vtk(x: Terms) -> Sides:
    L, K, sigma = x.problem.L, x.K, x.problem.sigma_star
    return x.V.sum(0), 8 * x.eta**2 * L * K**2 * x.phi.sum(0) + 4 * x.eta**2 * K**3 * sigma**2


def _vtk_sharper(x: Terms) -> Sides:
    L, K, sigma = x.problem.L, x.K, x.problem.sigma_star
    right = 6 * x.eta**2 * L * (K - 1) ** 2 * x.phi.sum(0) + 1.5 * x.eta**2 * K * (K - 1) ** 2 * sigma**2
    return x.V.sum(0), right / (1 - 3 * (x.eta * L * K) ** 2)


def _rt_within(x: Terms) -> Sides:
    left = _square(x.r[1:-1]) + x.eta * x.phi[:-1]
    return left, (1 - x.mu * x.eta) * _square(x.r[:-2]) + 1.5 * x.eta * x.problem.L * x.V[:-1]


def _rt_across(x: Terms) -> Sides:
    L = x.problem.L
    left = _square(x.r_next) + x.eta * x.phi[-1]
    local = (1 - x.mu * x.eta) * _square(x.r[-2]) + 1.5 * x.eta * L * x.V[-1]
    return left, local + x.eta**2 * x.alpha * x.K * (2 * L**2 * x.V.sum(0) + 4 * L * x.phi.sum(0))


def _rt_step1(x: Terms) -> Sides:
    r, g, h, eta = x.r[-2], x.g[-1], x.h, x.eta
    expanded = _square(r) + eta**2 * _square(g) - 2 * eta * _dot(r, g)
    expanded += 2 * eta * _dot(r, h) - 2 * eta**2 * _dot(g, h) + eta**2 * _square(h)
    return np.abs(_square(x.r_next) - expanded), _square(r) + eta**2 * (_square(g) + _square(h))


def _descent(x: Terms) -> Sides:
    return x.phi_next + x.eta / 2 * _square(x.g[0]), x.phi[0]


def _contraction(x: Terms) -> Sides:
    return x.phi_next, (1 - x.mu * x.eta) * x.phi[0]


def _convex_gap_1(x: Terms) -> Sides:
    moved = x.total - x.h  # R_tᵀ R_t ∇f(w^t)
    expanded = _square(x.r[0]) + x.eta**2 * _square(moved) - 2 * x.eta * _dot(x.r[0], moved)
    return np.abs(_square(x.r_next) - expanded), _square(x.r[0]) + x.eta**2 * _square(moved)


def _convex_ip_1(x: Terms) -> Sides:
    return _dot(x.r[0], x.total - x.h), _dot(x.r[0], x.g[0])


def _convex_ip_1_below(x: Terms) -> Sides:
    left, right = _convex_ip_1(x)  # E left >= right, turned round
    return 2 * right - left, right


def _convex_gap_2(x: Terms) -> Sides:
    left = _square(x.r_next) + 2 * x.eta * x.phi[0]
    return left, _square(x.r[0]) + x.eta**2 * (1 + x.alpha) * _square(x.g[0])


def _smooth_fact(x: Terms) -> Sides:
    turn = _square(x.objective.gradient(x.step.W_next) - x.g[0])
    return x.phi[0] + _dot(x.step.W_next - x.step.W, x.g[0]) + turn / (2 * x.problem.L), x.phi_next


def _mu_fact(x: Terms) -> Sides:
    return x.phi[0], _square(x.g[0]) / (2 * x.mu)


def _objective_move(x: Terms) -> Sides:
    L, K, G = x.problem.L, x.K, x.problem.G or 0.0
    right = x.phi[0] + x.eta**2 * L * K * G**2 / 2 * (K - 1 + K * (1 + x.alpha))
    return x.phi_next + x.eta * K * _square(x.g[0]), right


def _ip_diff(x: Terms) -> Sides:
    turn = ((x.step.G - x.step.G[0]) * x.g[0]).sum(-1)
    away = np.linalg.norm(x.step.U[:-1] - x.step.W, axis=-1)
    return turn, x.problem.L * away * np.linalg.norm(x.g[0], axis=-1)


def _gap_sgd(x: Terms) -> Sides:
    k = np.arange(1, x.K + 1)[:, None, None]
    away = np.linalg.norm(x.step.U[1:] - x.step.W, axis=-1)
    return away, np.broadcast_to(x.eta * k * (x.problem.G or 0.0), away.shape)


def _variance_bound(x: Terms) -> Sides:
    right = x.eta**2 * x.K**2 * (1 + x.alpha) * (x.problem.G or 0.0) ** 2
    return _square(x.step.W_next - x.step.W), right


LEMMAS: tuple[Lemma, ...] = (
    Lemma("lem:update_rule", "identity", _update_rule, "convex"),
    Lemma("lem:gtk1", "every", _gtk1, "convex"),
    Lemma("lem:gtk2", "every", _gtk2, "convex"),
    Lemma("eq:vtk_step1", "every", _vtk_step1, "drift"),
    Lemma("lem:vtk", "every", _vtk, "convex"),
    Lemma("lem:vtk (sharper)", "every", _vtk_sharper, "drift", corrected=True),
    Lemma("lem:rt", "every", _rt_within, "drift", part="k >= 1"),
    Lemma("lem:rt", "mean", _rt_across, "convex", part="k = 0"),
    Lemma("eq:rt_step1", "identity", _rt_step1, "convex"),
    Lemma("fact:L_smooth_fact", "every", _smooth_fact, "single convex"),
    Lemma("fact:mu_upper_bound", "every", _mu_fact, "single strong"),
    Lemma("eq:strong_convex_bound", "mean", _descent, "single"),
    Lemma("eq:f_wt+1", "mean", _contraction, "single strong"),
    Lemma("eq:convex_gap_1", "identity", _convex_gap_1, "single convex"),
    Lemma("eq:convex_ip_1", "mean", _convex_ip_1, "single convex", part="<="),
    Lemma("eq:convex_ip_1", "mean", _convex_ip_1_below, "single convex", part=">="),
    Lemma("eq:convex_gap_2", "mean", _convex_gap_2, "single convex"),
    Lemma("eq:ip_diff_sgd", "every", _ip_diff, "bounded drift"),
    Lemma("eq:gap_sgd", "every", _gap_sgd, "bounded"),
    Lemma("eq:variance_bound", "mean", _variance_bound, "bounded"),
    Lemma("lem:objective_move (corrected)", "mean", _objective_move, "bounded", corrected=True),
)


def check_lemmas(objective: KnownObjective, draws: Draws, *, K: int) -> Iterator[Row]:
    """Every lemma that applies: those of one step at eta = 1/((1+alpha)L), the others at 1/(8LK)."""
    alpha, L = draws.alpha[:, 0], objective.problem.L
    longest = {"1/((1+alpha)L)": 1 / ((1 + alpha) * L), "1/(8LK)": np.full_like(alpha, 1 / (8 * L * K))}
    for name, eta in longest.items():
        single = name.startswith("1/((")
        chosen = [x for x in LEMMAS if x.group.startswith("single") is single and x.applies(objective, K)]
        if chosen:
            setting = f"{objective.setting}, K={K}, eta={name}"
            yield from _compare(chosen, objective, draws, eta, K, setting)


def _compare(
    chosen: list[Lemma], objective: KnownObjective, draws: Draws, eta: Array, K: int, setting: str
) -> Iterator[Row]:
    sides: list[list[Sides]] = [[] for _ in chosen]
    for step in walk(objective, draws, eta=eta[:, None], K=K):
        terms = Terms(objective, step, eta, draws.alpha[:, 0])
        for lemma, found in zip(chosen, sides, strict=True):
            found.append(lemma.sides(terms))
    for lemma, found in zip(chosen, sides, strict=True):
        left, right = (draws.by_family(np.stack(side)) for side in zip(*found, strict=True))
        where = f"{setting}, {lemma.part}" if lemma.part else setting
        for f, family in enumerate(draws.families):
            yield _judge(lemma, where, family, left[..., f, :], right[..., f, :])


def _judge(lemma: Lemma, setting: str, family: str, left: Array, right: Array) -> Row:
    if lemma.kind == "identity":
        return identity_row(lemma.label, setting, family, left, right, corrected=lemma.corrected)
    rule = every_row if lemma.kind == "every" else one_round_row
    return rule(lemma.label, setting, family, left, right, corrected=lemma.corrected)


def _square(v: Array) -> Array:
    return np.einsum("...i,...i->...", v, v)


def _dot(u: Array, v: Array) -> Array:
    return np.einsum("...i,...i->...", u, v)


def _wide(x: Array) -> Array:
    return x[:, None]
