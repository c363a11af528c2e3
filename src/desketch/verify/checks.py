"""The convergence theorems that should hold, on every objective, family, number of local steps and kind of client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desketch.theory import Problem, Theorem, embedding, theorem
from desketch.verify.moments import Expected, expected_gaps
from desketch.verify.objectives import KnownObjective, Quadratic, decaying_quadratic
from desketch.verify.rows import Row, exact_row, sampled_row
from desketch.verify.simulate import Draws, Trace, run

__all__ = ["CASES", "LONGEST", "Case", "best_so_far", "check_curved", "check_exact", "check_runs", "compared_rounds"]

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
class Case:
    """A statement, run at eta = 1/(divisor (1+alpha) L K)."""

    statement: Theorem
    divisor: int

    def applies(self, problem: Problem, K: int) -> bool:
        """Whether the statement speaks of such a problem and K."""
        if self.statement.scheme == "single" and K > 1:
            return False
        if self.statement.curvature == "non-convex":
            return self.statement.scheme == "single" or problem.G is not None
        return bool(problem.mu) if self.statement.curvature == "strongly-convex" else problem.mu is not None

    def eta(self, problem: Problem, alpha: Any, K: int) -> Any:
        """The step, for one alpha or many."""
        return 1 / (self.divisor * (1 + alpha) * problem.L * K)

    def measured(self, trace: Trace | Expected) -> Array:
        """What the statement bounds."""
        return np.asarray(getattr(trace, _MEASURED[self.statement.scheme, self.statement.curvature]))

    def samples(self, measured: Array) -> Array:
        """Of ``measured`` (rounds + 1, seeds), what is compared; non-convex statements speak of the best round yet."""
        chosen = compared_rounds(len(measured) - 1)
        if self.statement.curvature == "non-convex":
            return measured[best_so_far(measured.mean(1))[chosen]]
        return measured[chosen]

    def bounds(self, problem: Problem, alpha: float, K: int, rounds: int) -> Array:
        """The right-hand side after every compared round."""
        eta = float(self.eta(problem, alpha, K))
        chosen = compared_rounds(rounds)
        return np.array([self.statement.bound(problem, alpha=alpha, K=K, eta=eta, T=t) for t in chosen])


def _cases() -> tuple[Case, ...]:
    local = (("paper", 8), ("corrected", 8), ("corrected", 4))
    return (
        Case(theorem("single", "strongly-convex"), 1),
        Case(theorem("single", "convex"), 2),
        Case(theorem("single", "non-convex"), 1),
        *(Case(theorem("local", "strongly-convex", form), n) for form, n in local),
        *(Case(theorem("local", "convex", form), n) for form, n in local),
        *(Case(theorem("local", "non-convex"), n) for n in (8, 4)),
    )


CASES = _cases()
LONGEST = tuple(case for case in CASES if case.statement.scheme == "single" or case.divisor == 4)


def check_runs(objective: KnownObjective, draws: Draws, *, K: int) -> Iterator[Row]:
    """Every statement that applies to ``objective`` with K local steps, sampled."""
    traces: dict[int, Trace] = {}
    for case in CASES:
        if not case.applies(objective.problem, K):
            continue
        if case.divisor not in traces:
            traces[case.divisor] = run(objective, draws, eta=case.eta(objective.problem, draws.alpha, K), K=K)
        measured = draws.by_family(case.measured(traces[case.divisor]))
        setting = f"{objective.setting}, K={K}, eta=1/({case.divisor}(1+alpha)LK)"
        for f, family in enumerate(draws.families):
            alpha = float(draws.alpha[f * draws.seeds, 0])
            samples, bound = case.samples(measured[:, f]), case.bounds(objective.problem, alpha, K, draws.rounds)
            label, corrected = case.statement.label, case.statement.form == "corrected"
            yield sampled_row(label, setting, family, samples, bound, corrected=corrected)


def best_so_far(means: Array) -> Array:
    """Index of the least mean among rounds 0..t, for every t."""
    fell = np.concatenate([[True], means[1:] < np.minimum.accumulate(means)[:-1]])
    return np.maximum.accumulate(np.where(fell, np.arange(len(means)), 0))


def compared_rounds(rounds: int) -> list[int]:
    """The rounds after which a statement is compared: each of the first 100, then 2 % apart, and the last."""
    chosen = list(range(1, min(rounds, 100) + 1))
    while chosen[-1] < rounds:
        chosen.append(min(max(chosen[-1] + 1, int(1.02 * chosen[-1])), rounds))
    return chosen


def check_exact(objective: Quadratic, families: tuple[str, ...], *, b: int, K: int, rounds: int) -> Iterator[Row]:
    """The convex and strongly convex statements against the exact expectation, for many rounds."""
    alphas = np.array([embedding(family, d=len(objective.w0), b=b).alpha for family in families])
    gaps: dict[int, Expected] = {}
    for case in CASES:
        if case.statement.curvature == "non-convex" or not case.applies(objective.problem, K):
            continue
        if case.divisor not in gaps:
            eta = case.eta(objective.problem, alphas, K)
            gaps[case.divisor] = expected_gaps(objective, families, b=b, eta=eta, K=K, rounds=rounds + 1)
        setting = f"{objective.setting}, K={K}, eta=1/({case.divisor}(1+alpha)LK), {rounds} rounds"
        yield from _exact(case, objective, families, setting, gaps[case.divisor], alphas=alphas, K=K, rounds=rounds)


def check_curved(families: tuple[str, ...], *, d: int, b: int, K: int, rounds: int) -> Iterator[Row]:
    """tr(H)/λ_max in place of d on a spectrum that decays: a theorem for one local step, an empirical law for more."""
    objective = decaying_quadratic(d)
    case, kind = (
        (Case(theorem("single", "strongly-convex"), 1), "curved alpha")
        if K == 1
        else (Case(theorem("local", "strongly-convex"), 4), "curved alpha, empirical")
    )
    ratio = float(np.trace(objective.H[0])) / objective.problem.L
    setting = f"{objective.setting}, K={K}, tr(H)/L = {ratio:.2f} of d = {d}, {rounds} rounds"
    alphas = np.array([embedding(family, d=d, b=b).alpha_curved(ratio) for family in families])
    eta = case.eta(objective.problem, alphas, K)
    gaps = expected_gaps(objective, families, b=b, eta=eta, K=K, rounds=rounds)
    for row in _exact(case, objective, families, setting, gaps, alphas=alphas, K=K, rounds=rounds):
        yield replace(row, theorem=f"{case.statement.label.removesuffix(' (sharper)')} ({kind})", corrected=True)


def _exact(
    case: Case,
    objective: Quadratic,
    families: tuple[str, ...],
    setting: str,
    gaps: Expected,
    *,
    alphas: Array,
    K: int,
    rounds: int,
) -> Iterator[Row]:
    expected, statement = case.measured(gaps)[compared_rounds(rounds)], case.statement
    for f, family in enumerate(families):
        bound = case.bounds(objective.problem, float(alphas[f]), K, rounds)
        corrected = statement.form == "corrected"
        yield exact_row(statement.label, setting, family, expected[:, f], bound, corrected=corrected)
