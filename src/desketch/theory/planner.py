"""Planner: the family, sketch size, local steps, step sizes, rounds and codec of least cost for a target accuracy.

Rounds come from the corrected theorems with the exact alpha of the family and codec. Two laws are offered:

* ``theorem``   alpha of the worst case. Since (1 + alpha) b >= d, no sketch can send fewer numbers than GD: it trades
  smaller messages for more of them.
* ``curvature`` ``Embedding.alpha_curved`` with tr(H)/λ_max in place of d. Proved for one local step on strongly convex
  and non-convex objectives (``single_step``); elsewhere it is what training shows. This is where sketches save.

The theorems never reward K > 1 with fewer rounds (their step shrinks as 1/K), training does: give K to plan with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from desketch.errors import TheoryError
from desketch.theory.convergence import Schedule, Theorem, theorem
from desketch.theory.embedding import embedding
from desketch.theory.link import CODECS, FRAME_BYTES, Codec, Link, alpha_on_the_wire
from desketch.theory.problem import Problem, demand

__all__ = ["OBJECTIVES", "Plan", "Question", "dense_plan", "grow", "plan"]

OBJECTIVES = ("bits", "time", "rounds")
# equal alphas go to the family that is cheapest to apply and mixes coordinates; uniform does not mix
_PREFERENCE = ("srht", "countsketch", "sparse2", "sparse1", "ams", "gaussian", "uniform")
_LOCAL_STEPS = (1, 2, 5, 10, 20, 50, 100)
_COARSE_STEPS = (1, 5, 20)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked: the problem, its size, the target, the link and what to save."""

    problem: Problem
    d: int
    N: int
    eps: float
    link: Link = field(default_factory=Link)
    participation: float = 1.0
    trace_ratio: float | None = None
    objective: str = "time"
    K: int | None = None  # local steps, when they are not to be chosen

    def __post_init__(self) -> None:
        demand(self.d >= 1 and self.N >= 1, f"need at least one parameter and one client, got d={self.d}, N={self.N}")
        demand(0 < self.participation <= 1, f"participation is a share in (0, 1], got {self.participation}")
        demand(self.eps > 0, f"the target accuracy must be positive, got {self.eps}")
        demand(self.objective in OBJECTIVES, f"objective is one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        demand(self.K is None or self.K >= 1, f"K counts local steps and is at least 1, got {self.K}")
        ratio = self.trace_ratio
        demand(ratio is None or 1 <= ratio <= self.d, f"tr(H)/λ_max lies between 1 and d = {self.d}, got {ratio}")

    @property
    def participants(self) -> int:
        """Clients heard in a round."""
        return max(1, round(self.participation * self.N))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One complete choice, what it costs, and what keeps it from costing less."""

    law: str
    theorem: str
    family: str
    b: int
    compression: float
    codec: str
    K: int
    T: int
    eta_local: float
    eta_global: float
    alpha: float
    alpha_on_the_wire: float
    bound: float
    bits: float
    seconds: float
    binds: tuple[str, ...]

    def cost(self, objective: str) -> tuple[float, ...]:
        """Smaller is better; ties fall to rounds, then bits."""
        first = {"bits": self.bits, "time": self.seconds, "rounds": float(self.T)}[objective]
        return (first, float(self.T), self.bits)


@dataclass(frozen=True)
class _Message:
    """What one client sends: a sketch and its rounding; ``rounded`` is alpha on the wire."""

    family: str
    b: int
    codec: Codec
    alpha: float
    rounded: float


def plan(question: Question, law: str = "theorem") -> Plan:
    """The best plan under ``law``; a TheoryError says which constant is missing when no theorem applies."""
    demand(law in ("theorem", "curvature"), f"law is theorem or curvature, got {law!r}")
    demand(law == "theorem" or question.trace_ratio is not None, "the curvature law needs tr(H)/λ_max")
    return _best(question, law, sizes=_sizes(question.d, 2), codecs=tuple(CODECS), steps=_LOCAL_STEPS)


def dense_plan(question: Question) -> Plan:
    """Local GD without sketching or rounding (khaled2019first): b = d, alpha = 0, 32-bit numbers."""
    return _best(question, "no sketch", sizes=(question.d,), codecs=("f32",), steps=_LOCAL_STEPS)


def grow(question: Question, law: str = "theorem") -> dict[str, list[Plan]]:
    """How the best plan changes with d (10³..10⁹) and with N (10..10⁶), all else equal, on a coarser search."""

    def coarse(q: Question) -> Plan:
        return _best(q, law, sizes=_sizes(q.d, 8), codecs=("int8", "int4", "sign1"), steps=_COARSE_STEPS)

    ratio = question.trace_ratio
    by_d = [replace(question, d=10**i, trace_ratio=ratio and min(ratio, 10.0**i)) for i in range(3, 10)]
    by_N = [replace(question, N=10**i) for i in range(1, 7)]
    return {"d": [coarse(q) for q in by_d], "N": [coarse(q) for q in by_N]}


def _best(
    question: Question, law: str, *, sizes: tuple[int, ...], codecs: tuple[str, ...], steps: tuple[int, ...]
) -> Plan:
    steps = steps if question.K is None else (question.K,)
    return min(_candidates(question, law, sizes, codecs, steps), key=lambda p: p.cost(question.objective))


def _candidates(
    question: Question, law: str, sizes: tuple[int, ...], codecs: tuple[str, ...], steps: tuple[int, ...]
) -> Iterator[Plan]:
    statements = list(_statements(question.problem, steps))
    for b in sizes:
        family, alpha = _family(question, law, b)
        for codec in (CODECS[name] for name in codecs):
            message = _Message(family, b, codec, alpha, alpha_on_the_wire(alpha, codec, question.participants))
            for K, statement in statements:
                schedule = statement.rounds(question.problem, alpha=message.rounded, K=K, eps=question.eps)
                yield _price(question, law, statement.label, schedule, message)


def _statements(problem: Problem, steps: tuple[int, ...]) -> Iterator[tuple[int, Theorem]]:
    """The theorem of every K; K > 1 on a non-convex problem needs the gradient bound G."""
    for K in steps:
        statement = theorem("single" if K == 1 else "local", problem.curvature)
        try:
            statement.check(problem, alpha=0.0, K=K)
        except TheoryError:
            if K == 1 or len(steps) == 1:
                raise
            continue
        yield K, statement


def _sizes(d: int, factor: int) -> tuple[int, ...]:
    powers = [factor**i for i in range(int(math.log(d, factor)) + 1) if factor**i < d] if d > 1 else []
    return (*powers, d)


def _family(question: Question, law: str, b: int) -> tuple[str, float]:
    """The family of least alpha; within a twentieth of it, preference decides."""
    if law == "no sketch":
        return "none", 0.0

    def alpha(family: str) -> float:
        constants = embedding(family, d=question.d, b=b)
        return constants.alpha if law == "theorem" else constants.alpha_curved(question.trace_ratio or 0.0)

    alphas = {family: alpha(family) for family in _PREFERENCE}
    least = min(alphas.values())
    family = next(f for f in _PREFERENCE if 1 + alphas[f] <= 1.05 * (1 + least))
    return family, alphas[family]


def _price(question: Question, law: str, label: str, schedule: Schedule, message: _Message) -> Plan:
    up = message.codec.frame(message.b)
    # an absentee is sent the 1/participation broadcasts it missed on average, or the weights where those are smaller
    down = min(up / question.participation, 4 * question.d + FRAME_BYTES)
    parts = question.link.parts(up_bytes=up, down_bytes=down, K=schedule.K)
    slowest, total = max(parts, key=lambda name: parts[name]), sum(parts.values())
    binds = (schedule.binds, f"{slowest}: {parts[slowest] / total:.0%} of a round") if total else (schedule.binds,)
    return Plan(
        law=law,
        theorem=label,
        family=message.family,
        b=message.b,
        compression=question.d / message.b,
        codec=message.codec.name,
        K=schedule.K,
        T=schedule.T,
        eta_local=schedule.eta_local,
        eta_global=schedule.eta_global,
        alpha=message.alpha,
        alpha_on_the_wire=message.rounded,
        bound=schedule.bound,
        bits=8.0 * schedule.T * question.participants * (up + down),
        seconds=schedule.T * total,
        binds=binds,
    )
