"""The theorems hold on small runs and in exact expectation, false statements are caught, and the rules have teeth."""

from itertools import pairwise

import numpy as np
import pytest

from desketch.theory.embedding import FAMILIES
from desketch.verify.checks import check_curved, check_exact, check_runs, compared_rounds
from desketch.verify.corollaries import check_communication, check_linear_rate, recipe
from desketch.verify.embeddings import check_moments, check_tails
from desketch.verify.moments import expected_gaps, second_moment
from desketch.verify.objectives import Quadratic, large_objectives, objectives
from desketch.verify.refutations import refute
from desketch.verify.rows import every_row, one_round_row, sampled_row, unbiased_row
from desketch.verify.simulate import run
from desketch.verify.weights import check_weights

from .conftest import B, D


@pytest.mark.parametrize("objective", objectives(D), ids=lambda o: o.setting)
@pytest.mark.parametrize("K", [1, 5])
def test_bounds_hold_on_sampled_runs(objective, draws, K):
    rows = list(check_runs(objective, draws, K=K))
    assert rows
    assert [row for row in rows if not row.holds] == []


@pytest.mark.parametrize("objective", [o for o in objectives(D) if isinstance(o, Quadratic)], ids=lambda o: o.setting)
@pytest.mark.parametrize("K", [1, 5, 20])
def test_bounds_hold_in_exact_expectation(objective, K):
    rows = list(check_exact(objective, FAMILIES, b=B, K=K, rounds=300))
    assert {row.family for row in rows} == set(FAMILIES)
    assert [row for row in rows if not row.holds] == []


def test_the_single_step_bound_is_attained():
    isotropic = objectives(D)[0]
    label = "thm:single_step_strong_convex"
    rows = [r for r in check_exact(isotropic, FAMILIES, b=B, K=1, rounds=50) if r.theorem == label]
    assert [row.worst_ratio for row in rows] == pytest.approx([1.0] * len(FAMILIES))


def test_moments_tails_and_the_curved_alpha_hold(draws):
    curved = [row for K in (1, 5) for row in check_curved(FAMILIES, d=D, b=B, K=K, rounds=300)]
    rows = [*check_moments(draws), *check_tails(draws), *curved]
    assert [row for row in rows if not row.holds] == []


def test_weighted_sketches_have_their_moments_and_the_best_weights_the_least_noise(draws):
    rows = list(check_weights(draws))
    assert {row.theorem for row in rows} == {
        "weighted sketch, mean",
        "weighted sketch, alpha",
        "weighted sketch, curved alpha",
        "best weights",
    }
    assert [row for row in rows if not row.holds] == []
    best = [row.worst_ratio for row in rows if row.theorem == "best weights" and row.family != "uniform"]
    assert all(0.5 < ratio <= 1 for ratio in best)


def test_false_statements_are_refuted_and_their_corrections_hold(draws):
    rows = list(refute(draws))
    assert [row for row in rows if not row.as_expected] == []
    assert {row.theorem for row in rows if row.verdict == "slip"} == {"Algorithm 1"}
    assert {row.theorem for row in rows if row.verdict == "refuted"} == {
        "theorem of sec:app_kstep_non",
        "lem:objective_move",
        "lem:gaussian_ip",
        "lem:ams_ip",
        "lem:srht_ip",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_second_moment_matches_draws(family, draws):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((D, D))
    A = A @ A.T
    f = FAMILIES.index(family)
    R = draws.R[f * draws.seeds : (f + 1) * draws.seeds].reshape(-1, B, D).astype(float)
    M = R.transpose(0, 2, 1) @ R
    samples = np.einsum("nij,jk,nkl,il->n", M, A, M, A) / np.sum(A * A)
    error = samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - np.sum(second_moment(family, d=D, b=B)(A) * A) / np.sum(A * A)) < 4.5 * error


def test_gradients_match_finite_differences_of_values():
    rng = np.random.default_rng(1)
    for objective in (*objectives(D), *large_objectives(D, heterogeneous=True)):
        w, v, h = rng.standard_normal((1, D)), rng.standard_normal((1, D)), 1e-5
        slope = (objective.values(w + h * v) - objective.values(w - h * v)) / (2 * h)
        assert slope[0] == pytest.approx(float((objective.gradient(w) * v).sum()), rel=1e-6, abs=1e-9)


def test_a_step_beyond_the_bound_is_reported_as_a_violation(draws):
    """The rule has teeth: a bound shrunk to a tenth fails."""
    objective = next(o for o in objectives(D) if o.name == "ridge")
    eta = 1 / ((1 + draws.alpha) * objective.problem.L)
    last = draws.by_family(run(objective, draws, eta=eta, K=1).last)[1:, 0]
    assert not sampled_row("t", "s", "gaussian", last, last.mean(1) / 10).holds
    assert sampled_row("t", "s", "gaussian", last, last.mean(1)).holds


def test_the_other_rules_have_teeth():
    rng = np.random.default_rng(0)
    right = rng.uniform(1, 2, (20, 30))
    noise = rng.standard_normal(right.shape)
    assert one_round_row("t", "s", "f", right * (1 + 0.3 * noise), right).holds
    assert not one_round_row("t", "s", "f", right * (1.2 + 0.3 * noise), right).holds
    assert every_row("t", "s", "f", right, right).holds
    assert not every_row("t", "s", "f", np.where(right == right.max(), 1.01 * right, right), right).holds
    assert not every_row("t", "s", "f", np.array([0.5, 0.1]), np.array([1.0, 0.0])).holds
    assert unbiased_row("t", "s", "f", noise.ravel(), 0.0).holds
    assert not unbiased_row("t", "s", "f", noise.ravel() + 0.3, 0.0).holds


def test_merely_convex_problems_are_there_and_have_a_minimiser():
    convex = [o for o in (*objectives(D), *large_objectives(96, heterogeneous=True)) if o.problem.mu == 0]
    assert {o.name for o in convex} == {"flat quadratic", "least squares", "log-cosh", "flat diagonal"}
    for objective in convex:
        assert np.linalg.norm(objective.gradient(objective.w_star[None])) < 1e-12
        assert objective.values(objective.w_star[None])[0] == pytest.approx(0, abs=1e-14)
    assert all(o.problem.sigma_star > 0.01 for o in convex if o.heterogeneous)


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("K", [1, 5])
def test_exact_expectations_match_the_sampled_ones(draws, K, heterogeneous):
    """Including that of w-bar, the mean over clients, local steps and rounds, on a merely convex problem."""
    objective = next(o for o in objectives(D) if (o.name, o.heterogeneous) == ("flat quadratic", heterogeneous))
    eta = np.full(len(FAMILIES), 0.05 / K)
    exact = expected_gaps(objective, FAMILIES, b=B, eta=eta, K=K, rounds=draws.rounds)
    trace = run(objective, draws, eta=np.repeat(eta, draws.seeds)[:, None], K=K)
    for measured, expected in ((trace.last, exact.last), (trace.local_mean, exact.local_mean)):
        samples = draws.by_family(measured)[[1, 5, 20, 50]]
        error = samples.std(2, ddof=1) / np.sqrt(draws.seeds)
        assert (abs(samples.mean(2) - expected[[1, 5, 20, 50]]) <= 5 * error + 1e-9).all()
    if K == 1:
        round_mean = draws.by_family(trace.round_mean)[10]
        error = round_mean.std(1, ddof=1) / np.sqrt(draws.seeds)
        assert (abs(round_mean.mean(1) - exact.round_mean[10]) <= 5 * error + 1e-9).all()


def test_the_recipes_of_the_corollaries_reach_epsilon():
    quadratics = [o for o in objectives(D) if isinstance(o, Quadratic) and o.heterogeneous]
    rows = [
        row
        for o in quadratics
        for row in check_communication(o, FAMILIES, b=B, K=5, share=0.1 if o.problem.mu else 0.5)
    ]
    rows += check_linear_rate(quadratics[1], ("ams",))
    assert [row for row in rows if not row.holds] == []
    shorter = recipe(quadratics[1].problem, alpha=3.0, K=1, eps=1e-2)
    longer = recipe(quadratics[1].problem, alpha=3.0, K=1, eps=1e-4)
    assert longer.eta < shorter.eta  # heterogeneity binds: the printed floor of one local step is not zero
    assert longer.T > 10 * shorter.T


def test_compared_rounds_are_dense_first_and_end_with_the_last():
    chosen = compared_rounds(3000)
    assert chosen[:100] == list(range(1, 101))
    assert chosen[-1] == 3000
    assert all(a < b <= 1.02 * a + 1 for a, b in pairwise(chosen))
    assert compared_rounds(3) == [1, 2, 3]
