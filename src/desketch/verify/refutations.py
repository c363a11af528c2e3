"""Printed statements that fail, false ones and a slip, each with a counter-example and the right one beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desketch.keys import Key
from desketch.sketches import draw
from desketch.theory import Problem, theorem
from desketch.theory.tails import columns
from desketch.verify.objectives import KnownObjective, objectives
from desketch.verify.rows import Row, frequency_row, one_round_row, sampled_row
from desketch.verify.simulate import Draws, run

__all__ = ["refute"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _PseudoHuber(KnownObjective):
    """f(w) = s (sqrt(1 + |w|²) - 1): smooth with L = G = s, and its gradient stays near s far from 0."""

    scale: float

    def gradients(self, U: Array) -> Array:
        return self.scale * U / np.sqrt(1 + (U**2).sum(-1, keepdims=True))

    def values(self, W: Array) -> Array:
        return self.scale * (np.sqrt(1 + (W**2).sum(-1)) - 1)


def refute(draws: Draws) -> Iterator[Row]:
    """All counter-examples."""
    yield from _non_convex(draws)
    yield from _mismatched_indices(draws)
    yield from _inner_products()


def _non_convex(draws: Draws) -> Iterator[Row]:
    """So small a step cannot move the gradient in 50 rounds, yet the print promises 1/T of the initial gap."""
    d, scale, eta = draws.R.shape[3], 20.0, 1e-4
    w0 = np.full(d, 10 / np.sqrt(d))
    objective = _PseudoHuber("pseudo-Huber", False, w0, Problem(L=scale), np.zeros(d), scale)
    problem = Problem(L=scale, mu=None, gap=float(objective.values(w0[None])[0]), G=scale)
    objective = replace(objective, problem=problem)
    T = min(50, draws.rounds)
    short = replace(draws, R=draws.R[:, :T])
    trace = run(objective, short, eta=np.full((draws.R.shape[0], 1), eta), K=1)
    gradient = draws.by_family(trace.gradient)  # (rounds + 1, families, seeds)
    for f, family in enumerate(draws.families):
        alpha = float(draws.alpha[f * draws.seeds, 0])
        least = gradient[[gradient[:, f].mean(1).argmin()], f]  # the samples of the best round
        for form in ("paper", "corrected"):
            statement = theorem("local", "non-convex", form)
            bound = statement.bound(problem, alpha=alpha, K=1, eta=eta, T=T)
            setting = f"pseudo-Huber, K=1, eta={eta}, T={T}: true {least.mean():.4g}, claimed <= {bound:.4g}"
            flags = {"refuted": form == "paper", "corrected": form == "corrected"}
            yield sampled_row(statement.label, setting, family, least, np.array([bound]), **flags)
        # the lemma it rests on: E f(w⁺) <= f(w) - eta_global |∇f(w)|² + eta L K² G² (eta_local + eta (1+alpha)/2)
        values = draws.by_family(trace.last)[:, f]
        right = values[:-1] + eta**2 * scale**3 * (1 + (1 + alpha) / 2)
        setting = f"pseudo-Huber, K=1, eta={eta}"
        yield one_round_row("lem:objective_move", setting, family, values[1:] + gradient[:-1, f], right, refuted=True)


_HOW = ("R_t both ways, as in lem:update_rule", "indices as printed, R_t sketches and R_{t+1} de-sketches")


def _mismatched_indices(draws: Draws) -> Iterator[Row]:
    """Algorithm 1 by its printed indices de-sketches with R_t what R_{t-1} sketched: E[R_tᵀ R_{t-1}] = 0, no descent.

    A slip: the paper's ``lem:update_rule`` has one index. What a round then promises is (1 - mu eta) of f(w) - f*.
    """
    objective = next(o for o in objectives(draws.R.shape[3]) if o.name == "quadratic")
    problem = objective.problem
    eta = 1 / ((1 + draws.alpha) * problem.L)
    for lag in (1, 0):
        last = draws.by_family(run(objective, draws, eta=eta, K=1, lag=lag).last)
        for f, family in enumerate(draws.families):
            promised = (1 - (problem.mu or 0.0) * float(eta[f * draws.seeds, 0])) * last[:-1, f]
            drift = float(last[-1, f].mean()) / problem.initial_gap
            flags = {"refuted": bool(lag), "slip": bool(lag), "corrected": not lag}
            setting = f"{_HOW[lag]}: f(w^T)/f(w^0) = {drift:.3g}"
            yield one_round_row("Algorithm 1", setting, family, last[1:, f], promised, **flags)


@dataclass(frozen=True)
class _Columns:
    """A size at which a printed lemma about inner products of columns fails."""

    family: str
    d: int
    b: int
    delta: float
    draws: int


_COLUMNS = (
    _Columns("gaussian", d=128, b=64, delta=0.01, draws=100),
    _Columns("ams", d=128, b=64, delta=0.01, draws=100),
    _Columns("srht", d=4096, b=64, delta=0.1, draws=60),
)


def _inner_products() -> Iterator[Row]:
    """Lemmas ``lem:gaussian_ip``, ``lem:ams_ip`` and ``lem:srht_ip`` with the printed constant one."""
    for case in _COLUMNS:
        largest = np.array(
            [_largest(case, Key(2023).fold_in("inner products", case.family, i)) for i in range(case.draws)]
        )
        tail = columns(case.family, d=case.d, b=case.b, delta=case.delta)
        for name, threshold, corrected in (("printed", tail.paper, False), ("proved", tail.proved, True)):
            failures = largest > threshold
            size = f"d={case.d}, b={case.b}, delta={case.delta}"
            setting = f"{name} constant, {size}: exceeded in {failures.mean():.0%} of draws"
            flags = {"refuted": not corrected, "corrected": corrected}
            yield frequency_row(tail.lemma, setting, case.family, failures, case.delta, **flags)


def _largest(case: _Columns, key: Key) -> float:
    """Max |<R_i, R_j>|, i != j; of one whole transform every product occurs, up to sign, with the first column."""
    R = draw(case.family, d=case.d, b=case.b, key=key).desketch(np.eye(case.b, dtype=np.float32))
    if case.family == "srht":
        return float(np.abs(R[:, 0] @ R[:, 1:]).max())
    return float(np.abs(R.T @ R - np.diag((R**2).sum(0))).max())
