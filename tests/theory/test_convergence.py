"""The theorems as functions: monotone, consistent with their inverses, refused outside their preconditions."""

import math
import subprocess
import sys

import pytest

from desketch.errors import TheoryError
from desketch.theory import Problem, compare_with_local_gd, theorem, theorems, total_bits
from desketch.theory.communication import order_of_growth, order_of_growth_local_gd

PROBLEM = {
    "strongly-convex": Problem(L=10.0, mu=0.5, sigma_star=1.0, distance=3.0, G=20.0),
    "convex": Problem(L=10.0, mu=0.0, sigma_star=1.0, distance=3.0, G=20.0),
    "non-convex": Problem(L=10.0, mu=None, sigma_star=1.0, distance=3.0, gap=7.0, G=20.0),
}
CASES = [
    (t, alpha, K)
    for t in theorems()
    for alpha in ((0.0,) if t.form == "local-gd" else (0.0, 3.0, 50.0))
    for K in ((1,) if t.scheme == "single" else (1, 5, 20))
]
IDS = [f"{t.scheme}-{t.curvature}-{t.form}-{alpha:g}-{K}" for t, alpha, K in CASES]


@pytest.mark.parametrize(("statement", "alpha", "K"), CASES, ids=IDS)
def test_rounds_reach_the_target_and_not_much_earlier(statement, alpha, K):
    problem = PROBLEM[statement.curvature]
    plan = statement.rounds(problem, alpha=alpha, K=K, eps=1e-2)
    at = {"alpha": alpha, "K": K, "eta": plan.eta_local}
    assert statement.bound(problem, **at, T=plan.T) <= 1e-2 * (1 + 1e-9)
    if plan.T > 1:
        assert statement.bound(problem, **at, T=plan.T - 2) > 1e-2 * (1 - 1e-9) or plan.T < 3
    assert plan.eta_local <= statement.max_step(problem, alpha=alpha, K=K) * (1 + 1e-9)


@pytest.mark.parametrize(("statement", "alpha", "K"), CASES, ids=IDS)
def test_bounds_fall_with_rounds_and_rise_with_alpha(statement, alpha, K):
    problem = PROBLEM[statement.curvature]
    eta = min(statement.max_step(problem, alpha=alpha, K=K), 1e-3)
    values = [statement.bound(problem, alpha=alpha, K=K, eta=eta, T=T) for T in (1, 10, 100, 1000)]
    assert values == sorted(values, reverse=True)
    if alpha:
        assert statement.max_step(problem, alpha=alpha, K=K) <= statement.max_step(problem, alpha=0.0, K=K)
        assert values[0] >= statement.bound(problem, alpha=0.0, K=K, eta=eta, T=1) * (1 - 1e-12)


@pytest.mark.parametrize("curvature", ["strongly-convex", "convex"])
@pytest.mark.parametrize("K", [1, 5, 20])
def test_the_corrected_form_is_never_worse_at_the_papers_step(curvature, K):
    problem = PROBLEM[curvature]
    paper, corrected = theorem("local", curvature, "paper"), theorem("local", curvature)
    for alpha in (0.0, 3.0, 50.0):
        eta = paper.max_step(problem, alpha=alpha, K=K)
        for T in (1, 10, 1000):
            at = {"alpha": alpha, "K": K, "eta": eta, "T": T}
            assert corrected.bound(problem, **at) <= paper.bound(problem, **at)
        eps = 1e-2
        assert (
            corrected.rounds(problem, alpha=alpha, K=K, eps=eps).T <= paper.rounds(problem, alpha=alpha, K=K, eps=eps).T
        )


def test_the_local_gd_constants_follow_from_ours():
    ours, theirs = theorem("local", "convex"), theorem("local", "convex", "local-gd")
    for K in (1, 2, 5, 20, 100):
        for sigma_star in (0.0, 1.0, 100.0):
            problem = Problem(L=2.0, sigma_star=sigma_star, distance=1.0)
            top = theirs.max_step(problem, alpha=0.0, K=K)
            for eta in (top, top / 10):
                for T in (1, 100):
                    at = {"alpha": 0.0, "K": K, "eta": eta, "T": T}
                    assert ours.bound(problem, **at) <= theirs.bound(problem, **at)


def test_constants_quoted_in_the_docs_hold_for_every_admissible_step():
    strong, convex = theorem("local", "strongly-convex"), theorem("local", "convex")
    for alpha in (0.0, 0.5, 5.0, 500.0):
        for K in (2, 5, 50):
            for fraction in (1.0, 0.5, 0.01):
                problem = Problem(L=1.0, mu=1.0, sigma_star=1.0, distance=1.0)
                eta = fraction * strong.max_step(problem, alpha=alpha, K=K)
                assert strong.floor(problem, alpha=alpha, K=K, eta=eta) <= 1.6 * eta**2 * (K - 1) ** 2
                assert convex.rate(problem, alpha=alpha, K=K, eta=eta) <= 13 / 4 + 1e-9
                assert convex.floor(problem, alpha=alpha, K=K, eta=eta) <= 9 * eta**2 * (K - 1) ** 2 * (1 + 1e-9)


def test_one_local_step_has_no_heterogeneity_floor():
    for curvature in ("strongly-convex", "convex"):
        statement = theorem("local", curvature)
        assert statement.floor(PROBLEM[curvature], alpha=3.0, K=1, eta=1e-3) == 0.0


def test_the_printed_non_convex_theorem_is_marked_and_below_a_certain_truth():
    printed = theorem("local", "non-convex", "paper")
    assert not printed.holds
    assert all(t.holds for t in theorems() if t is not printed)
    problem = Problem(L=20.0, mu=None, gap=76.0, G=20.0)
    # so small a step cannot have moved the gradient, of norm 20 at the start, in 50 rounds
    assert printed.bound(problem, alpha=0.0, K=1, eta=1e-4, T=50) < 1.5 < 20.0**2 * 0.9


def test_sketching_saves_bits_only_by_removing_the_heterogeneity_term():
    d, N, eps = 10**6, 100, 1e-6
    for curvature in ("strongly-convex", "convex"):
        problem = PROBLEM[curvature]
        assert order_of_growth(problem, d=d, N=N, eps=eps) <= order_of_growth_local_gd(problem, d=d, N=N, eps=eps)
    homogeneous = Problem(L=1.0, mu=0.1, distance=1.0)
    same = compare_with_local_gd(homogeneous, d=1024, b=64, N=10, K=5, alpha=1024 / 64 - 1, eps=1e-3)
    assert same.saving == pytest.approx(1.0, rel=0.05)  # (1 + alpha) b = d: the worst case promises nothing
    assert total_bits(T=2, N=3, b=5, bits_up=4, bits_down=8, header_bits=10) == 2 * 3 * (60 + 20)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Problem(L=0.0), "must be positive"),
        (lambda: Problem(L=1.0, mu=2.0), "cannot exceed"),
        (lambda: Problem(L=1.0, distance=math.nan), "finite"),
        (lambda: theorem("single", "convex").rounds(PROBLEM["convex"], alpha=1, K=2, eps=1), "one local step"),
        (lambda: theorem("local", "strongly-convex").rounds(PROBLEM["convex"], alpha=1, K=2, eps=1), "needs mu > 0"),
        (lambda: theorem("local", "convex").rounds(PROBLEM["non-convex"], alpha=1, K=2, eps=1), "convex objective"),
        (lambda: theorem("local", "non-convex").rounds(Problem(L=1.0, mu=None), alpha=1, K=2, eps=1), "bound G"),
        (lambda: theorem("local", "convex").rounds(PROBLEM["convex"], alpha=1, K=0, eps=1), "at least 1"),
        (lambda: theorem("local", "convex").rounds(PROBLEM["convex"], alpha=-1, K=1, eps=1), "alpha"),
        (lambda: theorem("local", "convex").rounds(PROBLEM["convex"], alpha=1, K=1, eps=0), "target"),
        (lambda: theorem("local", "convex").bound(PROBLEM["convex"], alpha=1, K=1, eta=1, T=1), "lower eta_local"),
        (lambda: theorem("local", "convex", "local-gd").rounds(PROBLEM["convex"], alpha=1, eps=1), "alpha must be 0"),
        (lambda: theorem("gossip", "convex"), "no theorem"),
        (lambda: theorem("local", "convex", "draft"), "no form"),
        (lambda: order_of_growth(PROBLEM["non-convex"], d=1, N=1, eps=1), "no communication cost"),
    ],
)
def test_preconditions_raise(call, match):
    with pytest.raises(TheoryError, match=match):
        call()


def test_theory_needs_neither_torch_nor_numpy():
    code = "import sys, desketch.theory; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
