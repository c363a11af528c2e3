"""Two remarks of the paper: projections of a sketch, and the linear rate above a target error."""

from math import log

import numpy as np
import pytest

from desketch.errors import TheoryError
from desketch.keys import Key
from desketch.sketches import draw
from desketch.theory import (
    Noise,
    Problem,
    embedding,
    linear_rate_down_to,
    linear_rate_in_the_paper,
    projected_alpha,
    projected_deviation,
    projected_variance,
    theorem,
)
from desketch.theory.embedding import FAMILIES

D, B, DRAWS = 32, 8, 2000


@pytest.mark.parametrize("family", FAMILIES)
def test_projected_sketches(family):
    """Mean, second moment of every coordinate and of all, and the tail, for a projection of rank 5."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(D, 5)))[0]
    P, h = basis @ basis.T, rng.normal(size=D)
    eye = np.eye(B, dtype=np.float32)
    R = np.stack([draw(family, d=D, b=B, key=Key(4).fold_in(family, i)).desketch(eye) for i in range(DRAWS)])
    v = np.einsum("nbd,nb->nd", R, R @ h) @ P
    energy, constants = h @ h, embedding(family, d=D, b=B)
    error = v.std(0, ddof=1) / np.sqrt(DRAWS)
    assert np.all(np.abs(v.mean(0) - P @ h) < 4.5 * error)
    square = v**2
    slack = 3.3 * square.std(0, ddof=1) / np.sqrt(DRAWS)
    limits = [projected_variance(constants, leverage=float(min(P[i, i], 1.0))) for i in range(D)]
    assert np.all(square.mean(0) - slack <= (P @ h) ** 2 + np.array(limits) * energy)
    total = square.sum(1)
    limit = (P @ h) @ (P @ h) + projected_alpha(constants, rank=5) * energy
    assert total.mean() - 3.3 * total.std(ddof=1) / np.sqrt(DRAWS) <= limit
    beyond = np.abs(v - P @ h)[:, 0] > projected_deviation(constants, delta=0.05, leverage=float(P[0, 0])) * energy**0.5
    assert beyond.mean() <= 0.05
    assert projected_alpha(constants, rank=D) == constants.alpha
    assert projected_alpha(constants, rank=1) <= projected_variance(constants)


def test_above_the_threshold_rounds_grow_as_a_logarithm_and_below_faster():
    problem = Problem(L=4.0, mu=0.5, sigma_star=0.3, distance=20.0)
    for form in ("paper", "corrected"):
        statement = theorem("local", "strongly-convex", form)
        for alpha in (0.0, 31.0):
            edge = linear_rate_down_to(statement, problem, alpha=alpha, K=5)
            top = statement.max_step(problem, alpha=alpha, K=5)
            above, higher = (statement.rounds(problem, alpha=alpha, K=5, eps=x * edge) for x in (10.0, 100.0))
            assert above.eta_local == pytest.approx(top, rel=0.01)
            step = problem.mu * top * (5 if form == "corrected" else 1)
            more = above.T - higher.T
            assert more == pytest.approx(log(99.5 / 9.5) / step, rel=0.05)
            below, lower = (statement.rounds(problem, alpha=alpha, K=5, eps=x * edge) for x in (0.01, 0.0001))
            assert below.eta_local < 0.5 * top
            assert lower.T > 8 * below.T  # as 1/sqrt(eps)


def test_the_papers_threshold_is_its_case_of_sketches_of_one_number():
    """At b = 1, 1 + alpha >= d, and the printed theorem with K = 1 is linear above sigma²/(mu d²)."""
    d, problem = 64, Problem(L=4.0, mu=0.5, sigma_star=3.0, distance=2.0)
    printed = theorem("local", "strongly-convex", "paper")
    alpha = embedding("srht", d=d, b=1).alpha
    edge = linear_rate_down_to(printed, problem, alpha=alpha, K=1)
    assert edge <= linear_rate_in_the_paper(problem, d=d) == 9.0 / (0.5 * d**2)
    assert linear_rate_down_to(printed, problem, alpha=0.0, K=1) > linear_rate_in_the_paper(problem, d=d)
    assert linear_rate_down_to(theorem("local", "strongly-convex"), problem, alpha=alpha, K=1) == 0.0
    rounded = theorem("single", "strongly-convex", "by-distance")
    assert linear_rate_down_to(rounded, problem, alpha=alpha, noise=Noise(uplink=0.1)) > 0.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: projected_alpha(embedding("srht", d=8, b=2), rank=9), "rank"),
        (lambda: projected_variance(embedding("srht", d=8, b=2), leverage=2.0), "leverage"),
        (lambda: projected_deviation(embedding("srht", d=8, b=2), delta=0.1, leverage=-1.0), "leverage"),
        (lambda: linear_rate_in_the_paper(Problem(L=1.0), d=8), "strong convexity"),
        (lambda: linear_rate_down_to(theorem("local", "convex"), Problem(L=1.0), alpha=0.0), "strong convexity"),
    ],
)
def test_remarks_have_preconditions(call, match):
    with pytest.raises(TheoryError, match=match):
        call()
