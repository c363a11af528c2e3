"""Every statement that should hold, on every objective, family, number of local steps and kind of client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desketch.verify.moments import expected_gap
from desketch.verify.objectives import Objective, Quadratic, decaying_quadratic
from desketch.verify.rows import Row, exact_row, frequency_row, sampled_row
from desketch.verify.simulate import Draws, Trace, run
from desketch.theory import Problem, Theorem, embedding, theorem
from desketch.theory.tails import Tail, chebyshev, columns, vectors

__all__ = ["check_curved", "check_exact", "check_moments", "check_runs", "check_tails"]

Array = np.ndarray[Any, np.dtype[Any]]

# what a statement bounds, read off a trace: (scheme, curvature) -> attribute of Trace
_MEASURED = {
    ("single", "strongly-convex"): "last",
    ("single", "convex"): "round_mean",
    ("single", "non-convex"): "gradient",
    ("local", "strongly-convex"): "last",
    ("local", "convex"): "local_mean",
    ("local", "non-convex"): "gradient",
}


@dataclass(frozen=True)
class _Case:
    """A statement, run at eta = 1/(divisor (1+alpha) L K)."""

    statement: Theorem
    divisor: int

    def applies(self, objective: Objective, K: int) -> bool:
        if self.statement.scheme == "single" and K > 1:
            return False
        if self.statement.curvature == "non-convex":
            return self.statement.scheme == "single" or objective.problem.G is not None
        return objective.problem.mu is not None


def _cases() -> tuple[_Case, ...]:
    local = (("paper", 8), ("corrected", 8), ("corrected", 4))
    return (
        _Case(theorem("single", "strongly-convex"), 1),
        _Case(theorem("single", "convex"), 2),
        _Case(theorem("single", "non-convex"), 1),
        *(_Case(theorem("local", "strongly-convex", form), n) for form, n in local),
        *(_Case(theorem("local", "convex", form), n) for form, n in local),
        *(_Case(theorem("local", "non-convex"), n) for n in (8, 4)),
    )


def check_runs(objective: Objective, draws: Draws, *, K: int) -> Iterator[Row]:
    """Every statement that applies to ``objective`` with K local steps, sampled."""
    traces: dict[int, Trace] = {}
    for case in _cases():
        if not case.applies(objective, K):
            continue
        if case.divisor not in traces:
            eta = 1 / (case.divisor * (1 + draws.alpha) * objective.problem.L * K)
            traces[case.divisor] = run(objective, draws, eta=eta, K=K)
        yield from _compare(case, objective, draws, traces[case.divisor], K)


def _compare(case: _Case, objective: Objective, draws: Draws, trace: Trace, K: int) -> Iterator[Row]:
    statement, problem = case.statement, objective.problem
    setting = f"{objective.setting}, K={K}, eta=1/({case.divisor}(1+alpha)LK)"
    measured = draws.by_family(getattr(trace, _MEASURED[statement.scheme, statement.curvature]))
    for f, family in enumerate(draws.families):
        alpha = float(draws.alpha[f * draws.seeds, 0])
        bound = _bounds(statement, problem, alpha=alpha, K=K, divisor=case.divisor, rounds=draws.rounds)
        samples = measured[1:, f]
        if statement.curvature == "non-convex":  # the theorem speaks of the best round so far
            samples = measured[_best_so_far(measured[:, f].mean(1))[1:], f]
        yield sampled_row(statement.label, setting, family, samples, bound, corrected=statement.form == "corrected")


def _best_so_far(means: Array) -> Array:
    """Index of the least mean among rounds 0..t, for every t."""
    fell = np.concatenate([[True], means[1:] < np.minimum.accumulate(means)[:-1]])
    return np.maximum.accumulate(np.where(fell, np.arange(len(means)), 0))


def _bounds(statement: Theorem, problem: Problem, *, alpha: float, K: int, divisor: float, rounds: int) -> Array:
    eta = 1 / (divisor * (1 + alpha) * problem.L * K)
    return np.array([statement.bound(problem, alpha=alpha, K=K, eta=eta, T=t) for t in range(1, rounds + 1)])


def check_exact(objective: Quadratic, families: tuple[str, ...], *, b: int, K: int, rounds: int) -> Iterator[Row]:
    """The strongly convex statements against the exact expectation, for many rounds."""
    for case in _cases():
        if case.statement.curvature != "strongly-convex" or not case.applies(objective, K):
            continue
        setting = f"{objective.setting}, K={K}, eta=1/({case.divisor}(1+alpha)LK), {rounds} rounds"
        for family in families:
            alpha = embedding(family, d=len(objective.w0), b=b).alpha
            yield _exact(
                case.statement, objective, family, setting, alpha=alpha, b=b, K=K, divisor=case.divisor, rounds=rounds
            )


def check_curved(families: tuple[str, ...], *, d: int, b: int, K: int, rounds: int) -> Iterator[Row]:
    """tr(H)/λ_max in place of d on a spectrum that decays: a theorem for one local step, an empirical law for more."""
    objective = decaying_quadratic(d)
    statement, divisor, kind = (
        (theorem("single", "strongly-convex"), 1, "curved alpha")
        if K == 1
        else (theorem("local", "strongly-convex"), 4, "curved alpha, empirical")
    )
    ratio = float(np.trace(objective.H[0])) / objective.problem.L
    setting = f"{objective.setting}, K={K}, tr(H)/L = {ratio:.2f} of d = {d}, {rounds} rounds"
    for family in families:
        alpha = embedding(family, d=d, b=b).alpha_curved(ratio)
        row = _exact(statement, objective, family, setting, alpha=alpha, b=b, K=K, divisor=divisor, rounds=rounds)
        yield replace(row, theorem=f"{statement.label.removesuffix(' (sharper)')} ({kind})", corrected=True)


def _exact(
    statement: Theorem,
    objective: Quadratic,
    family: str,
    setting: str,
    *,
    alpha: float,
    b: int,
    K: int,
    divisor: float,
    rounds: int,
) -> Row:
    bound = _bounds(statement, objective.problem, alpha=alpha, K=K, divisor=divisor, rounds=rounds)
    eta = 1 / (divisor * (1 + alpha) * objective.problem.L * K)
    gaps = expected_gap(objective, family, b=b, eta=eta, K=K, rounds=rounds)[1:]
    return exact_row(statement.label, setting, family, gaps, bound, corrected=statement.form == "corrected")


def _grams(draws: Draws, f: int) -> Array:
    R = draws.R[f * draws.seeds : (f + 1) * draws.seeds].astype(np.float64).reshape(-1, *draws.R.shape[2:])
    return R.transpose(0, 2, 1) @ R


def check_moments(draws: Draws) -> Iterator[Row]:
    """Theorem ``thm:enc_dec`` with the paper's alpha and with the exact one, on a flat, a one-hot and a random g."""
    b, d = draws.R.shape[2:]
    directions = {"flat g": np.ones(d), "one-hot g": np.eye(d)[0], "random g": np.random.default_rng(3).normal(size=d)}
    for f, family in enumerate(draws.families):
        grams, constants = _grams(draws, f), embedding(family, d=d, b=b)
        for name, g in directions.items():
            energy = (((grams @ g) ** 2).sum(1) / (g @ g))[None]
            for alpha, corrected in ((constants.alpha_paper, False), (constants.alpha, True)):
                bound = np.array([1 + alpha])
                yield sampled_row("thm:enc_dec", f"{name}, d={d}, b={b}", family, energy, bound, corrected=corrected)


def check_tails(draws: Draws, *, delta: float = 0.05) -> Iterator[Row]:
    """The high-probability lemmas with every constant, as frequencies over the draws."""
    b, d = draws.R.shape[2:]
    g, h = (x / np.linalg.norm(x) for x in np.random.default_rng(4).normal(size=(2, d)))
    for f, family in enumerate(draws.families):
        grams = _grams(draws, f)
        inner = np.abs(grams * (1 - np.eye(d))).max((1, 2))
        error = np.abs((grams @ h) @ g - g @ h)
        size: dict[str, Any] = {"d": d, "b": b, "delta": delta}
        tails: tuple[tuple[Tail, Array], ...] = (
            (columns(family, **size), inner),
            (vectors(family, **size), error),
            (chebyshev(family, **size), error),
        )
        for tail, measured in tails:
            setting = f"proved constant, delta={delta}, d={d}, b={b}"
            failures = measured > tail.proved + 1e-6
            yield frequency_row(tail.lemma, setting, family, failures, delta, corrected=True)
