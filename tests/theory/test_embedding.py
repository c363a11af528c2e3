"""The moment constants: equal to the drawn operators', attained by measurement, never below the lower bound."""

import numpy as np
import pytest

import desketch
from desketch.errors import TheoryError
from desketch.theory.embedding import FAMILIES, alpha_lower_bound, embedding
from desketch.theory.tails import chebyshev, columns, vectors

D, B, DRAWS = 24, 8, 1500


@pytest.fixture(scope="module")
def grams():
    """family -> (DRAWS, D, D) independent draws of RᵀR."""

    def gram(family, i):
        R = desketch.draw(family, d=D, b=B, key=desketch.Key(11).fold_in("moments", family, i))
        rows = R.desketch(np.eye(B, dtype=np.float32)).astype(float)
        return rows.T @ rows

    return {family: np.stack([gram(family, i) for i in range(DRAWS)]) for family in FAMILIES}


def z_score(samples, expected):
    return (samples.mean() - expected) / (samples.std(ddof=1) / np.sqrt(len(samples)))


def test_families_are_those_that_can_be_drawn():
    assert set(FAMILIES) == set(desketch.FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("d", "b"), [(16, 4), (24, 8), (100, 20), (128, 128)])
def test_alpha_agrees_with_the_drawn_operator(family, d, b):
    R = desketch.draw(family, d=d, b=b, key=desketch.Key(1))
    stated = embedding(family, d=d, b=b)
    assert R.alpha == pytest.approx(stated.alpha)
    assert family == "uniform" or R.alpha_paper == pytest.approx(stated.alpha_paper)


@pytest.mark.parametrize("family", FAMILIES)
def test_alpha_is_the_measured_second_moment(family, grams):
    rng = np.random.default_rng(0)
    g = rng.standard_normal(D)
    energy = ((grams[family] @ g) ** 2).sum(1) / (g @ g)
    R = desketch.draw(family, d=D, b=B, key=desketch.Key(0))
    assert abs(z_score(energy, 1 + R.alpha)) < 4.5


@pytest.mark.parametrize("family", FAMILIES)
def test_the_coordinate_constant_bounds_every_pair_and_is_attained(family, grams):
    stated = embedding(family, d=D, b=B)
    flat, spike = np.ones(D) / np.sqrt(D), np.eye(D)[0]
    worst = spike if family == "uniform" else flat
    for g, h in [(flat, flat), (spike, spike), (flat, spike), (worst, worst)]:
        products = ((grams[family] @ h) @ g) ** 2
        bound = (g @ h) ** 2 + stated.a / B
        assert products.mean() <= bound + 4.5 * products.std() / np.sqrt(DRAWS)
    assert abs(z_score(((grams[family] @ worst) @ worst) ** 2, 1 + stated.a / B)) < 4.5


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_constants_never_exceed_the_papers(family):
    for d, b in [(16, 4), (1000, 37), (4096, 4096)]:
        stated = embedding(family, d=d, b=b)
        assert stated.a <= stated.a_paper
        assert stated.alpha <= stated.alpha_paper
        assert stated.alpha >= alpha_lower_bound(d, b) - 1e-12


@pytest.mark.parametrize(("family", "d"), [("srht", 64), ("uniform", 60)])
def test_two_families_attain_the_lower_bound(family, d):
    assert embedding(family, d=d, b=6).alpha == pytest.approx(alpha_lower_bound(d, 6))


@pytest.mark.parametrize("family", FAMILIES)
def test_curved_alpha_bounds_the_energy_in_any_curvature(family, grams):
    stated = embedding(family, d=D, b=B)
    rng = np.random.default_rng(1)
    spectrum = np.geomspace(1.0, 1e-3, D)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    H = Q @ np.diag(spectrum) @ Q.T
    r = spectrum.sum()
    for g in (Q[:, 0], Q[:, -1], np.eye(D)[0], np.ones(D) / np.sqrt(D)):
        v = grams[family] @ g
        energy = np.einsum("ni,ij,nj->n", v, H, v)
        assert energy.mean() <= 1 + stated.alpha_curved(r) + 4.5 * energy.std() / np.sqrt(DRAWS)
    assert stated.alpha_curved(float(D)) == pytest.approx(stated.alpha)
    assert stated.alpha_curved(1.0) <= stated.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("delta", [0.01, 0.1])
def test_proved_tails_fail_no_more_often_than_delta(family, delta, grams):
    rng = np.random.default_rng(2)
    allowed = delta + 4.5 * np.sqrt(delta / DRAWS)
    off_diagonal = np.abs(grams[family] * (1 - np.eye(D))).max((1, 2))
    assert (off_diagonal > columns(family, d=D, b=B, delta=delta).proved + 1e-9).mean() <= allowed
    for _ in range(3):
        g, h = (x / np.linalg.norm(x) for x in rng.standard_normal((2, D)))
        error = np.abs((grams[family] @ h) @ g - g @ h)
        assert (error > vectors(family, d=D, b=B, delta=delta).proved).mean() <= allowed
        assert (error > chebyshev(family, d=D, b=B, delta=delta).proved).mean() <= allowed


def test_the_printed_constant_of_the_inner_product_lemmas_is_too_small(grams):
    for family in ("gaussian", "ams"):
        off_diagonal = np.abs(grams[family] * (1 - np.eye(D))).max((1, 2))
        assert (off_diagonal > columns(family, d=D, b=B, delta=0.1).paper).mean() > 0.3


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: embedding("fourier", d=4, b=2), "unknown sketch family"),
        (lambda: embedding("srht", d=4, b=5), "1 <= b <= d"),
        (lambda: alpha_lower_bound(4, 0), "1 <= b <= d"),
        (lambda: columns("srht", d=4, b=2, delta=1.0), "strictly between"),
        (lambda: vectors("sparse1", d=4, b=2, delta=0.1, nnz=0), "at least 1"),
        (lambda: embedding("srht", d=4, b=2).alpha_curved(5.0), "between 1 and d"),
    ],
)
def test_wrong_sizes_are_refused(call, match):
    with pytest.raises(TheoryError, match=match):
        call()
