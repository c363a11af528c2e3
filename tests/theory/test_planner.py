"""Plans: they reach the target, cost no more than any neighbour, and say what binds."""

import math
from dataclasses import replace

import pytest

from desketch.errors import TheoryError
from desketch.theory import Problem, embedding, theorems
from desketch.theory.link import CODECS, Link, rounding
from desketch.theory.planner import OBJECTIVES, Question, dense_plan, grow, plan

LINK = Link(uplink=1e6, downlink=5e6, latency=0.05, step_seconds=0.01)
STRONG = Question(
    problem=Problem(L=10.0, mu=0.1, sigma_star=1.0, distance=10.0),
    d=10**6,
    N=100,
    eps=1e-3,
    link=LINK,
    trace_ratio=20.0,
)
QUESTIONS = [
    STRONG,
    replace(STRONG, problem=replace(STRONG.problem, mu=0.0)),
    replace(STRONG, problem=replace(STRONG.problem, mu=None)),
    replace(STRONG, problem=replace(STRONG.problem, zeta=2.0), gradient_noise=3.0),
    replace(
        STRONG, problem=replace(STRONG.problem, mu=None, zeta=1.0), participation=0.5, noise_multiplier=1.0, clip=5.0
    ),
    replace(STRONG, problem=replace(STRONG.problem, mu=None, G=30.0), K=5),
    replace(STRONG, d=1000, N=3, participation=0.4),
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("law", ["theorem", "curvature"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_reaches_its_target_by_its_theorem(question, law, objective):
    question = replace(question, objective=objective)
    p = plan(question, law)
    (statement,) = (t for t in theorems() if t.label == p.theorem)
    assert (statement.scheme, statement.curvature) == ("single" if p.K == 1 else "local", question.problem.curvature)
    assert statement.holds
    bound = statement.bound(question.problem, alpha=p.alpha, K=p.K, eta=p.eta_local, T=p.T, noise=p.noise)
    assert bound == p.bound <= question.eps * (1 + 1e-9)
    assert p.noise.clients == question.participants
    assert p.noise.uplink == CODECS[p.codec].omega(p.b, p.family)
    constants = embedding(p.family, d=question.d, b=p.b)
    assert p.alpha == (constants.alpha if law == "theorem" else constants.alpha_curved(20.0))
    assert p.binds
    other = min((plan(replace(question, objective=o), law) for o in OBJECTIVES), key=lambda q: q.cost(objective))
    assert p.cost(objective) <= other.cost(objective)


def test_bits_and_seconds_are_those_of_the_frames():
    p = plan(STRONG)
    frame = CODECS[p.codec].frame(p.b)
    assert p.bits == 8 * p.T * 100 * 2 * frame
    assert p.seconds == pytest.approx(p.T * (0.1 + 8 * frame / 1e6 + 8 * frame / 5e6 + p.K * 0.01))


def test_the_worst_case_sends_no_fewer_numbers_and_curvature_does():
    question = replace(STRONG, objective="bits", problem=replace(STRONG.problem, sigma_star=0.0))
    worst, curved, dense = plan(question), plan(question, "curvature"), dense_plan(question)
    numbers = worst.T * worst.b
    assert numbers >= 0.99 * dense.T * dense.b
    assert curved.T * curved.b < numbers / 1000


def test_growth_covers_the_ranges_and_the_worst_case_grows_linearly_in_d():
    question = replace(STRONG, objective="bits")
    growth = grow(question, "theorem")
    assert len(growth["d"]) == 7
    assert len(growth["N"]) == 6
    bits = [p.bits for p in growth["d"]]
    assert bits == sorted(bits)
    assert bits[-1] / bits[2] == pytest.approx(1e4, rel=0.5)
    flat = [p.bits for p in grow(question, "curvature")["d"]]
    assert flat[-1] < 1.5 * flat[1]
    each = [p.bits / n for p, n in zip(growth["N"], (10**i for i in range(1, 7)), strict=True)]
    assert each == sorted(each, reverse=True)  # more clients average their rounding errors away
    assert growth["N"][-1].codec == "sign1"


def test_absentees_cost_downlink_up_to_the_whole_model():
    full = plan(replace(STRONG, objective="bits"), "curvature")
    half = plan(replace(STRONG, objective="bits", participation=0.5), "curvature")
    assert half.bits > full.bits / 2
    tiny = replace(STRONG, d=64, N=1000, participation=0.01, trace_ratio=4.0)
    p = plan(tiny)
    assert p.bits <= 8 * p.T * 10 * (CODECS[p.codec].frame(p.b) + 4 * 64 + 25)


def test_bounds_on_rounding_shrink_with_clients_and_with_spreading_sketches():
    for codec in CODECS.values():
        assert codec.frame(1000) < codec.frame(2000)
        for b in (1, 32, 256, 10_000):
            few, many = (rounding(codec, family="srht", b=b, clients=n) for n in (1, 10**6))
            assert many.loaded(3.0, 1.0) <= few.loaded(3.0, 1.0)
            assert few.loaded(3.0, 1.0) >= 3.0
            assert codec.omega(b, "srht") <= codec.omega(b, "countsketch") == codec.worst(b)
            anywhere = rounding(codec, family="countsketch", b=b, clients=4)
            assert anywhere.loaded(3.0, 1.0) >= rounding(codec, family="srht", b=b, clients=4).loaded(3.0, 1.0)


@pytest.mark.parametrize("name", CODECS)
def test_planner_codecs_agree_with_the_wire(name):
    from desketch.wire import CODEC_TABLE

    assert set(CODECS) == set(CODEC_TABLE)
    for b in (1, 255, 256, 257, 10_001):
        assert CODECS[name].payload(b) == CODEC_TABLE[name].size(b)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: replace(STRONG, participation=0.0), "participation"),
        (lambda: replace(STRONG, objective="money"), "objective"),
        (lambda: replace(STRONG, d=0), "at least one"),
        (lambda: replace(STRONG, eps=-1.0), "positive"),
        (lambda: replace(STRONG, K=0), "at least 1"),
        (lambda: replace(STRONG, trace_ratio=0.5), "between 1 and d"),
        (lambda: plan(replace(STRONG, trace_ratio=None), "curvature"), "needs tr"),
        (lambda: plan(STRONG, "hope"), "law is"),
        (lambda: plan(replace(STRONG, problem=Problem(L=1.0, mu=None, gap=1.0), K=5)), "bound G"),
        (lambda: Link(uplink=0.0), "positive"),
        (lambda: Link(latency=-1.0), "negative"),
    ],
)
def test_impossible_questions_are_refused(call, match):
    with pytest.raises(TheoryError, match=match):
        call()


def test_an_infinite_link_binds_on_the_step_alone():
    p = plan(replace(STRONG, link=Link(), objective="rounds"))
    assert p.seconds == 0
    assert len(p.binds) == 1
    assert math.isfinite(p.bits)
