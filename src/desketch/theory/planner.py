"""Planner: the family, sketch size, local steps, step sizes, rounds and codec of least cost for a target accuracy.

Rounds come from the corrected theorems with the exact alpha of the family and the noise of the run: rounding of every
message up and down, mini-batches, absent clients, privacy (``noise.py``). Two laws are offered:

* ``theorem``   alpha of the worst case. Since (1 + alpha) b >= d, no sketch can send fewer numbers than GD: it trades
  smaller messages for more of them.
* ``curvature`` ``Embedding.alpha_curved`` with tr(H)/λ_max in place of d. Proved for one local step on strongly convex
  and non-convex objectives (``single_step``); elsewhere, and for the rounding of several blocks, it is what training
  shows. This is where sketches save.

The theorems never reward K > 1 with fewer rounds (their step shrinks as 1/K), training does: give K to plan with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from desketch.errors import TheoryError
from desketch.theory.convergence import Theorem, theorem
from desketch.theory.embedding import embedding
from desketch.theory.link import CODECS, FRAME_BYTES, CodecCost, Link, rounding, sign_bias
from desketch.theory.noise import Noise
from desketch.theory.problem import Problem, demand

__all__ = ["BIAS_LIMIT", "OBJECTIVES", "Plan", "Question", "dense_plan", "grow", "plan"]

OBJECTIVES = ("bits", "time", "rounds")
# equal alphas go to the family that is cheapest to apply and mixes coordinates; uniform does not mix
_PREFERENCE = ("srht", "countsketch", "sparse2", "sparse1", "ams", "gaussian", "uniform")
BIAS_LIMIT = 0.02  # a plan warns when its code can be further from unbiased, relative to the vector
_LOCAL_STEPS = (1, 2, 5, 10, 20, 50, 100)
_COARSE_STEPS = (1, 5, 20)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked: the problem, its size, the target error, the link and what to save.

    ``gradient_noise``    nu: E|mini-batch gradient - gradient|² <= nu² at every client
    ``noise_multiplier``  z, and ``clip``: the server adds N(0, (z·C)²) to the sum of the sketches, C = eta·K·clip, and
    clip is above every client's sketched mean gradient of a round, so that nothing is really clipped
    """

    problem: Problem
    d: int
    N: int
    eps: float
    link: Link = field(default_factory=Link)
    participation: float = 1.0
    trace_ratio: float | None = None
    objective: str = "time"
    K: int | None = None  # local steps, when they are not to be chosen
    codecs: tuple[str, ...] = tuple(CODECS)
    gradient_noise: float = 0.0
    noise_multiplier: float = 0.0
    clip: float = 0.0

    def __post_init__(self) -> None:
        demand(self.d >= 1 and self.N >= 1, f"need at least one parameter and one client, got d={self.d}, N={self.N}")
        demand(0 < self.participation <= 1, f"participation is a share in (0, 1], got {self.participation}")
        demand(self.eps > 0, f"the target error must be positive, got {self.eps}")
        unknown = [name for name in self.codecs if name not in CODECS]
        demand(bool(self.codecs) and not unknown, f"codecs are some of {', '.join(CODECS)}, got {self.codecs}")
        demand(self.gradient_noise >= 0, f"gradient noise cannot be negative, got {self.gradient_noise}")
        demand(
            not self.noise_multiplier or self.clip > 0,
            "privacy noise needs the clip of a client's mean gradient; give both",
        )
        demand(self.objective in OBJECTIVES, f"objective is one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        demand(self.K is None or self.K >= 1, f"K counts local steps and is at least 1, got {self.K}")
        ratio = self.trace_ratio
        demand(ratio is None or 1 <= ratio <= self.d, f"tr(H)/λ_max lies between 1 and d = {self.d}, got {ratio}")

    @property
    def participants(self) -> int:
        """Clients heard in a round."""
        return max(1, round(self.participation * self.N))

    def noise(self, codec: CodecCost, family: str, b: int, law: str) -> Noise:
        """Everything random in a round but the sketch."""
        n = self.participants
        wire = rounding(codec, family=family, b=b, clients=n, population=self.N)
        spread = self.trace_ratio or self.d if law == "curvature" else self.d  # E zᵀRHRᵀz = tr(H) E z_1²
        release = self.noise_multiplier * self.clip * math.sqrt(spread) / n
        return replace(wire, gradient=self.gradient_noise, release=release)


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
    noise: Noise
    alpha_on_the_wire: float
    bound: float
    bytes_per_client: float
    bits: float
    seconds: float
    binds: tuple[str, ...]

    @property
    def bias(self) -> float:
        """How far the code can be from unbiased, relative to what it codes."""
        return sign_bias(self.b) if self.codec == "sign1" else 0.0

    def cost(self, objective: str) -> tuple[float, ...]:
        """Smaller is better; ties fall to rounds, then bits."""
        first = {"bits": self.bits, "time": self.seconds, "rounds": float(self.T)}[objective]
        return (first, float(self.T), self.bits)


@dataclass(frozen=True)
class _Message:
    """What one client sends: a sketch and its rounding, and the noise of a round of such messages."""

    family: str
    b: int
    codec: CodecCost
    alpha: float
    noise: Noise


def plan(question: Question, law: str = "theorem") -> Plan:
    """The best plan under ``law``; a TheoryError says which constant is missing when no theorem applies."""
    demand(law in ("theorem", "curvature"), f"law is theorem or curvature, got {law!r}")
    demand(law == "theorem" or question.trace_ratio is not None, "the curvature law needs tr(H)/λ_max")
    return _best(question, law, sizes=_sizes(question.d, 2), codecs=question.codecs, steps=_LOCAL_STEPS)


def dense_plan(question: Question) -> Plan:
    """Local GD without sketching or rounding (khaled2019first): b = d, alpha = 0, 32-bit numbers."""
    return _best(question, "no sketch", sizes=(question.d,), codecs=("f32",), steps=_LOCAL_STEPS)


def grow(question: Question, law: str = "theorem") -> dict[str, list[Plan]]:
    """How the best plan changes with d (10³..10⁹) and with N (10..10⁶), all else equal, on a coarser search."""

    def coarse(q: Question) -> Plan:
        return _best(q, law, sizes=_sizes(q.d, 8), codecs=coarse_codecs, steps=_COARSE_STEPS)

    coarse_codecs = tuple(name for name in question.codecs if name in ("int8", "int4", "sign1")) or question.codecs

    ratio = question.trace_ratio
    by_d = [replace(question, d=10**i, trace_ratio=ratio and min(ratio, 10.0**i)) for i in range(3, 10)]
    by_N = [replace(question, N=10**i) for i in range(1, 7)]
    return {"d": [coarse(q) for q in by_d], "N": [coarse(q) for q in by_N]}


def _best(
    question: Question, law: str, *, sizes: tuple[int, ...], codecs: tuple[str, ...], steps: tuple[int, ...]
) -> Plan:
    """The cheapest of all plans whose theorem applies; where none does, why the first does not."""
    refused: list[TheoryError] = []
    steps = steps if question.K is None else (question.K,)
    plans = _candidates(question, law, sizes, codecs, steps, refused)
    best = min(plans, key=lambda p: p.cost(question.objective), default=None)
    if best is None:
        raise refused[0]
    return best


def _candidates(
    question: Question,
    law: str,
    sizes: tuple[int, ...],
    codecs: tuple[str, ...],
    steps: tuple[int, ...],
    refused: list[TheoryError],
) -> Iterator[Plan]:
    for b in sizes:
        family, alpha = _family(question, law, b)
        for codec in (CODECS[name] for name in codecs):
            message = _Message(family, b, codec, alpha, question.noise(codec, family, b, law))
            for K in steps:
                try:
                    statement = _statement(question.problem, message.noise, K)
                except TheoryError as error:
                    refused.append(error)
                else:
                    yield _price(question, law, statement, K, message)


def _statement(problem: Problem, noise: Noise, K: int) -> Theorem:
    """The theorem for K local steps whose preconditions hold."""
    statement = theorem("single" if K == 1 else "local", problem.curvature)
    statement.check(problem, alpha=0.0, K=K)
    if statement.curvature == "strongly-convex" and K == 1 and noise.client_factor and problem.spread is None:
        return theorem("single", "strongly-convex", "by-distance")
    statement.check_noise(problem, noise)
    return statement


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


def _price(question: Question, law: str, statement: Theorem, K: int, message: _Message) -> Plan:
    problem, noise = question.problem, message.noise
    schedule = statement.rounds(problem, alpha=message.alpha, K=K, eps=question.eps, noise=noise)
    up = message.codec.frame(message.b)
    # an absentee is sent the 1/participation broadcasts it missed on average, or the weights where those are smaller
    down = min(up / question.participation, 4 * question.d + FRAME_BYTES)
    parts = question.link.parts(up_bytes=up, down_bytes=down, K=K)
    slowest, total = max(parts, key=lambda name: parts[name]), sum(parts.values())
    binds = (schedule.binds, f"{slowest}: {parts[slowest] / total:.0%} of a round") if total else (schedule.binds,)
    return Plan(
        law=law,
        theorem=statement.label,
        family=message.family,
        b=message.b,
        compression=question.d / message.b,
        codec=message.codec.name,
        K=K,
        T=schedule.T,
        eta_local=schedule.eta_local,
        eta_global=schedule.eta_global,
        alpha=message.alpha,
        noise=noise,
        alpha_on_the_wire=statement.loaded_alpha(problem, alpha=message.alpha, K=K, noise=noise),
        bound=schedule.bound,
        bytes_per_client=schedule.T * question.participants / question.N * (up + down),
        bits=8.0 * schedule.T * question.participants * (up + down),
        seconds=schedule.T * total,
        binds=binds,
    )
