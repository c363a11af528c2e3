"""The answer to a question as one JSON document: plans, their cost, the paper's corollaries, and advice in words."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from desketch.errors import TheoryError
from desketch.theory.communication import (
    compare_with_local_gd,
    linear_rate_down_to,
    linear_rate_in_the_paper,
    order_of_growth,
    order_of_growth_local_gd,
)
from desketch.theory.convergence import theorems
from desketch.theory.link import CODECS
from desketch.theory.planner import BIAS_LIMIT, Plan, Question, dense_plan, grow, plan

__all__ = ["answer", "size"]

_PROVED_BY_CURVATURE = ("thm:single_step_strong_convex", "thm:single_step_non_convex")


def answer(question: Question, origins: dict[str, str]) -> dict[str, Any]:
    """Every plan, how cost grows, and where constants that were not given came from."""
    laws = ("theorem",) if question.trace_ratio is None else ("theorem", "curvature")
    plans = {law: plan(question, law) for law in laws}
    dense, best = dense_plan(question), plans[laws[-1]]
    growth = grow(question, laws[-1])
    asked = asdict(question)
    asked["target_error"] = asked.pop("eps")
    return {
        "advice": _advice(question, best, dense),
        "question": asked,
        "estimated": origins,
        "plans": {law: asdict(p) for law, p in plans.items()},
        "local_gd": asdict(dense),
        "communication": _communication(question, plans["theorem"]),
        "growth": {
            "law": laws[-1],
            "d": [{"d": 10**i, "N": question.N} | _brief(p) for i, p in enumerate(growth["d"], start=3)],
            "N": [{"d": question.d, "N": 10**i} | _brief(p) for i, p in enumerate(growth["N"], start=1)],
        },
        "notes": _notes(question, best),
    }


def _advice(question: Question, best: Plan, dense: Plan) -> str:
    what = f"b = {best.b:,} of {question.d:,} numbers" if best.b < question.d else f"all {question.d:,} numbers"
    return (
        f"Send {what} ({best.family} sketch), {CODECS[best.codec].words}, K = {best.K}, {best.T:,} rounds at step "
        f"{best.eta_local:.3g}: about {size(best.bytes_per_client)} per client; "
        f"FedAvg {size(dense.bytes_per_client)}."
    )


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def _brief(p: Plan) -> dict[str, Any]:
    return {name: getattr(p, name) for name in ("family", "b", "codec", "K", "T", "bits", "seconds")}


def _communication(question: Question, p: Plan) -> dict[str, Any]:
    """The paper's communication corollaries, its linear rate, and the same target by the corrected theorems."""
    problem, d, N, eps = question.problem, question.d, question.N, question.eps
    if problem.mu is None:
        return {"none": "the paper states no communication cost for non-convex objectives"}
    document: dict[str, Any] = {
        "order_of_growth": order_of_growth(problem, d=d, N=N, eps=eps),
        "order_of_growth_local_gd": order_of_growth_local_gd(problem, d=d, N=N, eps=eps),
    }
    up = 8 * CODECS[p.codec].payload(p.b) / p.b
    measure = compare_with_local_gd(problem, d=d, N=N, eps=eps, b=p.b, K=p.K, alpha=p.alpha, bits=up, noise=p.noise)
    document["compare_with_local_gd"] = asdict(measure) | {"saving": measure.saving, "K": p.K, "b": p.b}
    if problem.mu:
        (statement,) = (t for t in theorems() if t.label == p.theorem)
        document["linear_rate_in_the_paper"] = linear_rate_in_the_paper(problem, d=question.d)
        document["linear_rate_down_to"] = linear_rate_down_to(statement, problem, alpha=p.alpha, K=p.K, noise=p.noise)
    return document


def _notes(question: Question, best: Plan) -> list[str]:
    notes = ["rounds are what the theorems guarantee, not a forecast: training mostly takes far fewer"]
    if best.bias > BIAS_LIMIT:
        notes.append(
            f"warning: at b = {best.b} the one-bit code can be {best.bias:.0%} from unbiased, above the "
            f"{BIAS_LIMIT:.0%} at which a bound can be trusted; use int4 or int8, or a larger b"
        )
    if best.codec == "f16":
        notes.append("f16 rounds to nearest: its error of 2^-11 is counted as noise, though it is not random")
    if best.law == "curvature" and best.theorem not in _PROVED_BY_CURVATURE:
        notes.append(
            "by curvature this plan is what training shows, not a bound: it is proved for K = 1 on strongly convex "
            "(with --spread) and non-convex objectives"
        )
    if question.trace_ratio is None:
        notes.append("the worst case promises no saving from sketches; give --trace-ratio or --from-run to see theirs")
    if question.K is None:
        notes.append("the theorems never reward K > 1 with fewer rounds, training does: --local-steps fixes K")
    if "f32" in question.codecs and not _rounding_covered(question):
        notes.append("rounded messages need --heterogeneity on a non-convex objective; only f32 was considered")
    return notes


def _rounding_covered(question: Question) -> bool:
    """Whether any theorem covers rounded messages for this problem."""
    try:
        plan(replace(question, codecs=("int8",)))
    except TheoryError:
        return False
    return True
