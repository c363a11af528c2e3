"""The printed inner-product lemmas are false: drawn sketches exceed them, as often as a proved bound says."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard

import desketch
from desketch.errors import SketchError, TheoryError
from desketch.sketches.hadamard import largest_inner_product
from desketch.theory.inner_products import exceeded_at_least
from desketch.theory.tails import columns


def srht_maxima(n, b, draws):
    key = desketch.Key(2023)
    drawn = (desketch.draw("srht", d=n, b=b, key=key.fold_in("columns", i)) for i in range(draws))
    return np.array([largest_inner_product(R) for R in drawn])


@pytest.mark.parametrize(("n", "b", "delta", "draws"), [(4096, 64, 0.1, 60), (65536, 256, 0.01, 30)])
def test_printed_srht_lemma_is_refuted_and_the_corrected_one_holds(n, b, delta, draws):
    largest, tail = srht_maxima(n, b, draws), columns("srht", d=n, b=b, delta=delta)
    least = exceeded_at_least("srht", n=n, b=b, delta=delta)
    exceeded = int((largest >= tail.paper - 1e-9).sum())
    assert least > 7 * delta
    assert stats.binom.cdf(exceeded, draws, least) > 1e-4  # as often as the proof says
    assert stats.binom.sf(exceeded - 1, draws, 3 * delta) < 1e-6  # and three times the claim is out of the question
    assert (largest > tail.proved).sum() <= stats.binom.isf(1e-4, draws, delta)


def test_corrected_srht_lemma_is_sharp_to_a_fifth():
    """Half of all draws reach four fifths of the proved threshold: no smaller constant would do for long."""
    tail = columns("srht", d=1 << 14, b=512, delta=0.5)
    assert np.median(srht_maxima(1 << 14, 512, 20)) > 0.8 * tail.proved


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 13, 33, 48, 64])
@pytest.mark.parametrize("block", [None, 1, 4, 16])
def test_two_columns_hold_all_products(d, block):
    for t in range(4):
        R = desketch.draw("srht", d=d, b=max(1, d // 3), key=desketch.Key(t), block=block)
        A = R.to_dense()
        products = np.abs(A.T @ A - np.diag((A**2).sum(0)))
        assert largest_inner_product(R) == pytest.approx(products.max(), abs=1e-12)


def test_products_of_other_families_are_refused():
    with pytest.raises(SketchError, match="draw srht"):
        largest_inner_product(desketch.draw("ams", d=8, b=4, key=desketch.Key(0)))


@pytest.mark.parametrize(("n", "b", "delta"), [(16, 5, 0.5), (32, 8, 0.9), (64, 10, 0.3)])
def test_bound_of_srht_is_the_second_moment_bound(n, b, delta):
    """E[N] and E[N²] by brute force over many subsets of rows agree with the hypergeometric sums."""
    t = columns("srht", d=n, b=b, delta=delta).paper
    rng, H = np.random.default_rng(0), hadamard(n)
    rows = rng.random((40_000, n)).argsort(1)[:, :b]
    N = (np.abs(H[rows].sum(1)[:, 1:]) >= t * b - 1e-9).sum(1)
    stated = exceeded_at_least("srht", n=n, b=b, delta=delta)
    assert stated == pytest.approx(N.mean() ** 2 / (N.astype(float) ** 2).mean(), rel=0.05)
    assert (N > 0).mean() >= stated - 0.01


@pytest.mark.parametrize("family", ["gaussian", "ams"])
@pytest.mark.parametrize(("n", "b", "delta"), [(32, 8, 0.3), (64, 16, 0.1), (128, 64, 0.01)])
def test_bounds_of_gaussian_and_ams_are_below_what_is_drawn(family, n, b, delta):
    threshold, draws, key = columns(family, d=n, b=b, delta=delta).paper, 200, desketch.Key(9)
    exceeded = 0
    for i in range(draws):
        A = desketch.draw(family, d=n, b=b, key=key.fold_in(family, i)).to_dense()
        products = np.abs(A.T @ A)
        np.fill_diagonal(products, 0)
        exceeded += products.max() >= threshold - 1e-9
    least = exceeded_at_least(family, n=n, b=b, delta=delta)
    assert 0 < least <= 1
    assert stats.binom.cdf(exceeded, draws, least) > 1e-4


@pytest.mark.parametrize(("family", "power"), [("gaussian", 28), ("ams", 12), ("srht", 34)])
def test_printed_lemmas_fail_surely_as_n_grows(family, power):
    delta, b = 0.01, 64
    chances = [exceeded_at_least(family, n=1 << k, b=b, delta=delta) for k in range(8, power + 1, 2)]
    assert chances[-1] > 0.99
    assert chances[0] < chances[-1]


@pytest.mark.parametrize("family", ["srht", "ams"])
def test_lemma_is_true_and_empty_where_its_threshold_exceeds_one(family):
    n, b, delta = 1 << 12, 8, 0.01
    assert math.log(n / delta) > b
    assert columns(family, d=n, b=b, delta=delta).paper > 1
    assert exceeded_at_least(family, n=n, b=b, delta=delta) == 0.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: exceeded_at_least("uniform", n=8, b=4, delta=0.1), "known for"),
        (lambda: exceeded_at_least("srht", n=12, b=4, delta=0.1), "power of two"),
    ],
)
def test_wrong_cases_are_refused(call, match):
    with pytest.raises(TheoryError, match=match):
        call()
