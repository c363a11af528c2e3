"""What the paper takes from elsewhere: its tail bounds, convexity facts and remarks, where they hold and where not.

Tails are exact (SciPy's distribution functions, or all signs at once), so a counter-example is one.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

import desketch
from desketch.sketches import FAMILIES
from desketch.theory import Problem, theorem
from desketch.theory.embedding import embedding
from desketch.theory.tails import columns

RADEMACHER = np.array(list(product((-1, 1), repeat=10)))


@pytest.mark.parametrize("n", [20, 1000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_chernoff_holds_up_to_delta_one(n, p):
    mu = n * p
    for delta in np.linspace(0.02, 0.98, 25):
        assert stats.binom.sf(math.ceil((1 + delta) * mu - 1e-9) - 1, n, p) <= math.exp(-(delta**2) * mu / 3)
        assert stats.binom.cdf(math.floor((1 - delta) * mu + 1e-9), n, p) <= math.exp(-(delta**2) * mu / 2)


def test_chernoff_as_printed_fails_for_large_delta():
    """ "For all delta > 0": the tail of a rare event falls like exp(-delta log delta), not exp(-delta²/3)."""
    n, p, delta = 1000, 0.001, 10.0
    assert stats.binom.sf(10, n, p) > 1e6 * math.exp(-(delta**2) / 3)


def test_hoeffding_and_bernstein_hold():
    z = np.linspace(0.3, 2.0, RADEMACHER.shape[1])
    sums = RADEMACHER @ z
    for t in np.linspace(0.1, z.sum(), 40):
        assert (np.abs(sums) >= t).mean() <= 2 * math.exp(-2 * t**2 / (4 * z @ z))
        assert (sums > t).mean() <= math.exp(-(t**2) / 2 / (z @ z + z.max() * t / 3))


def test_khintchine_needs_a_factor_before_the_exponential():
    """One sign: |σ z| >= |z| always, and exp(-C) < 1 for every C > 0. With the factor 2, C = 1/2 serves."""
    assert all((np.abs(RADEMACHER[:, 0]) >= 1).mean() > math.exp(-C) for C in (1e-6, 1.0))
    for n in (1, 3, 10):
        z = np.linspace(0.5, 1.5, n)
        shares = np.abs(RADEMACHER[:, :n] @ z) / np.linalg.norm(z)
        for t in np.linspace(0.05, 3.5, 40):
            assert (shares >= t).mean() <= 2 * math.exp(-(t**2) / 2)


@pytest.mark.parametrize("k", [1, 4, 100])
def test_laurent_massart_holds(k):
    for t in np.geomspace(0.01, 30, 40):
        assert stats.chi2.sf(k + 2 * math.sqrt(k * t) + 2 * t, k) <= math.exp(-t)
        assert stats.chi2.cdf(k - 2 * math.sqrt(k * t), k) <= math.exp(-t)


def test_the_sub_exponential_tail_needs_a_factor_two():
    """A sign has E exp(λX) = cosh λ <= exp(λ²/2), so it is SE(1, α) for every α, and |X| >= 1 always."""
    for scale in np.linspace(-3, 3, 25):
        assert math.cosh(scale) <= math.exp(scale**2 / 2) + 1e-12
    t, spread = 1.0, 1.0
    assert (np.abs(RADEMACHER[:, 0]) >= t).mean() > math.exp(-0.5 * min(t**2, t / spread))
    for k in (1, 5, 50):  # (χ²_k - k) is SE(4k, 4): both sides together below twice the printed bound
        for t in np.geomspace(0.1, 20 * k, 30):
            tail = stats.chi2.sf(k + t, k) + stats.chi2.cdf(k - t, k)
            assert tail <= 2 * math.exp(-0.5 * min(t**2 / (4 * k), t / 4)) + 1e-15


def test_matrix_chernoff_as_printed_fails_and_with_a_half_it_holds():
    """1 x 1 matrices, 5000 of 100000 without replacement, 1000 of them 1: the exponent lacks the 1/2."""
    population, ones, n = 100_000, 1000, 5000
    mu = n * ones / population
    failures = 0
    for delta in np.linspace(0.05, 0.95, 19):
        low = stats.hypergeom.cdf(math.floor((1 - delta) * mu + 1e-9), population, ones, n)
        assert low <= math.exp(-(delta**2) * mu / 2)
        failures += low > math.exp(-(delta**2) * mu)
        assert stats.hypergeom.sf(math.ceil((1 + delta) * mu) - 1, population, ones, n) <= math.exp(
            -(delta**2) * mu / 4
        )
    assert failures > 5
    assert stats.hypergeom.sf(10, population, 20, n) > math.exp(-(10**2) / 4)  # μ = 1, δ = 10: "for δ >= 0" fails too


LOSSES = [  # value, slope, L, mu, minimum
    (lambda x: 1.5 * x**2, lambda x: 3 * x, 3.0, 3.0, 0.0),
    (lambda x: math.log(2 * math.cosh(x)) + 0.05 * x**2, lambda x: math.tanh(x) + 0.1 * x, 1.1, 0.1, math.log(2)),
    (lambda x: math.sqrt(1 + x**2) + 0.25 * x**2, lambda x: x / math.sqrt(1 + x**2) + 0.5 * x, 1.5, 0.5, 1.0),
]
POINTS = [-7.0, -2.0, -0.4, 0.0, 0.3, 1.0, 5.0]


@pytest.mark.parametrize(("f", "slope", "L", "mu", "least"), LOSSES)
def test_convexity_facts(f, slope, L, mu, least):
    """def:convex, def:L_smooth, def:mu_strong_convex, and the two facts that the proofs take from them."""
    for x, y in product(POINTS, POINTS):
        remainder = f(y) - f(x) - (y - x) * slope(x)
        gap = slope(y) - slope(x)
        assert remainder >= -1e-12  # convex
        assert mu / 2 * (y - x) ** 2 - 1e-12 <= remainder <= L / 2 * (y - x) ** 2 + 1e-12
        assert mu * abs(x - y) - 1e-12 <= abs(gap) <= L * abs(x - y) + 1e-12
        assert remainder >= gap**2 / (2 * L) - 1e-12  # fact:L_smooth_fact
        assert f(x) - least <= slope(x) ** 2 / (2 * mu) + 1e-12  # fact:mu_upper_bound


def test_two_printed_equivalences_hold_for_convex_functions_only():
    """f = -3x²: the second form of 1-smoothness and the first of 1-strong convexity hold, the other two fail."""

    def f(x):
        return -3 * x**2

    def slope(x):
        return -6 * x

    for x, y in product(POINTS, POINTS):
        remainder, gap = f(y) - f(x) - (y - x) * slope(x), abs(slope(y) - slope(x))
        assert remainder <= (y - x) ** 2 / 2 + 1e-12  # 1-smooth, second form
        assert gap >= abs(x - y)  # 1-strongly convex, first form
        if x != y:
            assert gap > abs(x - y)  # not 1-smooth, first form
            assert remainder < (y - x) ** 2 / 2  # not 1-strongly convex, second form


def test_the_assumption_prints_the_inner_product_with_the_wrong_sign():
    """ass:f_ass with + <y-x, ∇f(x)>: x²/2 is 1-smooth and 1-strongly convex, and violates it at x = 1, y = 1/2."""
    x, y = 1.0, 0.5
    assert y**2 / 2 - x**2 / 2 + (y - x) * x < 0
    assert y**2 / 2 - x**2 / 2 - (y - x) * x == pytest.approx((y - x) ** 2 / 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_projections_of_a_desketched_vector(family):
    """The first remark on embeddings: P RᵀR h is unbiased, and coordinate i errs by at most (a/b)|h|² on average."""
    d, b, draws = 16, 4, 1500
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.standard_normal((d, 5)))[0]
    P, h = Q @ Q.T, rng.standard_normal(d)
    key = desketch.Key(41).fold_in("projection", family)
    sketches = (desketch.draw(family, d=d, b=b, key=key.fold_in(t)) for t in range(draws))
    out = np.stack([P @ R.desketch(R.sketch(h)) for R in sketches])
    error = out.std(0, ddof=1) / math.sqrt(draws)
    assert (np.abs(out.mean(0) - P @ h) <= 4.5 * error).all()
    squares = out**2
    a = embedding(family, d=d, b=b).a
    bound = (P @ h) ** 2 + a / b * (h @ h)
    assert (squares.mean(0) <= bound + 4.5 * squares.std(0) / math.sqrt(draws)).all()


@pytest.mark.parametrize("d", [16, 256])
@pytest.mark.parametrize("sigma", [0.1, 3.0])
def test_linear_rate_above_sigma_squared_over_mu_d_squared(d, sigma):
    """One local step, b = 1 (alpha = d - 1): for ε >= σ²/(μ d²), T = (8dL/μ) log(LD²/ε) rounds reach ε, as printed."""
    L, mu, distance = 2.0, 0.1, 5.0
    statement = theorem("local", "strongly-convex", "paper")
    problem = Problem(L=L, mu=mu, sigma_star=sigma, distance=distance)
    alpha = embedding("srht", d=d, b=1).alpha
    eta = statement.max_step(problem, alpha=alpha)
    for eps in sigma**2 / (mu * d**2) * np.array([1.0, 3.0, 10.0]):
        T = math.ceil(8 * d * L / mu * math.log(max(L * distance**2 / eps, math.e)))
        assert statement.bound(problem, alpha=alpha, eta=eta, T=T) <= eps
    short = sigma**2 / (mu * d**2) / 100  # far below, the printed floor of this step stays above the target
    assert statement.floor(problem, alpha=alpha, K=1, eta=eta) > short


def test_the_rate_is_that_of_gd_divided_by_one_plus_alpha():
    """The remark after the single-step theorems: the sketch enters the rate by 1/((1+alpha)L) only."""
    statement = theorem("single", "non-convex")
    problem = Problem(L=2.0, mu=None, gap=1.0)
    for alpha in (0.0, 1.0, 30.0):
        eta = statement.max_step(problem, alpha=alpha)
        assert eta == pytest.approx(1 / ((1 + alpha) * 2.0))
        plain = statement.bound(problem, alpha=0.0, eta=0.5, T=99)
        assert statement.bound(problem, alpha=alpha, eta=eta, T=99) == pytest.approx((1 + alpha) * plain)


def gaussian_delta(epsilon, sigma):
    """The least delta of a Gaussian mechanism of sensitivity 1, in closed form."""
    low, high = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return stats.norm.cdf(low) - math.exp(epsilon + stats.norm.logcdf(high))


def test_the_gaussian_mechanism_holds_below_epsilon_one_and_not_for_every_epsilon():
    def sigma(epsilon, delta):
        return math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    for epsilon, delta in product((0.05, 0.5, 0.99), (1e-9, 1e-5, 1e-2, 0.5)):
        assert gaussian_delta(epsilon, sigma(epsilon, delta)) <= delta
    assert gaussian_delta(20.0, sigma(20.0, 0.1)) > 0.1  # the lemma as printed has no condition on epsilon


def test_srht_inner_products_exceed_the_printed_threshold():
    """lem:srht_ip with constant one: at d = 2^k all inner products are, up to sign, those with the first column."""
    d, b, delta, draws = 4096, 64, 0.1, 30
    first = np.zeros(d)
    first[0] = 1.0
    exceeded = 0
    for t in range(draws):
        R = desketch.draw("srht", d=d, b=b, key=desketch.Key(43).fold_in("columns", t))
        largest = np.abs(R.desketch(R.sketch(first)))[1:].max()
        exceeded += largest > columns("srht", d=d, b=b, delta=delta).paper
        assert largest <= columns("srht", d=d, b=b, delta=delta).proved
    assert exceeded / draws > 5 * delta
