"""The moments of the Fourier variant of SRHT, from every sample of rows at once: no tolerance for chance."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import desketch
from desketch.errors import TheoryError
from desketch.theory.embedding import alpha_lower_bound, embedding

SIZES = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 1), (6, 4), (8, 3), (9, 2), (12, 2)]


def unsigned_grams(d, b):
    """(d/b) Hᵀ SᵀS H for every S, H the Hartley matrix."""
    angles = 2 * np.pi * np.outer(np.arange(d), np.arange(d)) / d
    H = (np.cos(angles) + np.sin(angles)) / np.sqrt(d)
    return np.stack([d / b * H[list(S)].T @ H[list(S)] for S in combinations(range(d), b)])


def second_moment(grams, g):
    """E[(gᵀRᵀRg)²] for independent signs: equal pairs of columns survive."""
    d, t = grams.shape[1], g**2
    off = (grams**2).mean(0) * (1 - np.eye(d))
    return ((grams[:, range(d), range(d)] @ t) ** 2).mean() + 2 * t @ off @ t


@pytest.mark.parametrize(("d", "b"), SIZES)
def test_a_is_the_supremum_over_all_vectors(d, b):
    grams, stated = unsigned_grams(d, b), embedding("srht", d=d, b=b, transform="fourier")
    rng = np.random.default_rng(0)

    def excess(g):
        return b * (second_moment(grams, g / np.linalg.norm(g)) - 1)

    best = max(-minimize(lambda g: -excess(g), rng.standard_normal(d)).fun for _ in range(25))
    assert best == pytest.approx(stated.a, abs=1e-6)
    assert stated.a <= stated.a_paper


@pytest.mark.parametrize(("d", "b"), SIZES)
def test_alpha_is_attained_by_every_vector_and_is_the_least_possible(d, b):
    squares = (unsigned_grams(d, b) @ unsigned_grams(d, b)).mean(0)
    stated = embedding("srht", d=d, b=b, transform="fourier")
    np.testing.assert_allclose(squares, (1 + stated.alpha) * np.eye(d), atol=1e-12)
    assert stated.alpha == pytest.approx(alpha_lower_bound(d, b))
    R = desketch.draw("srht", d=d, b=b, key=desketch.Key(0), transform="fourier")
    assert R.alpha == pytest.approx(stated.alpha)
    assert R.alpha_paper == pytest.approx(stated.alpha_paper)


@pytest.mark.parametrize(("d", "b"), SIZES)
def test_curved_alpha_bounds_the_energy_in_any_curvature(d, b):
    """E[RᵀR H RᵀR] in closed form from the moments of the unsigned Gram matrix, for curvatures of every rank."""
    grams, stated = unsigned_grams(d, b), embedding("srht", d=d, b=b, transform="fourier")
    square = (grams**2).mean(0)
    diagonal = grams[:, range(d), range(d)]
    diagonals = diagonal.T @ diagonal / len(grams)
    rng = np.random.default_rng(1)
    for rank in range(1, d + 1):
        for _ in range(30):
            V = rng.standard_normal((d, rank)) * (rng.random((d, 1)) < 0.6)
            H = V @ V.T
            if not H.any():
                continue
            top = np.linalg.eigvalsh(H)[-1]
            off = H * (diagonals + square) * (1 - np.eye(d))
            energy = np.linalg.eigvalsh(off + np.diag(square @ np.diag(H)))[-1]
            ratio = min(max(np.trace(H) / top, 1.0), float(d))
            assert energy <= top * (1 + stated.alpha_curved(ratio)) * (1 + 1e-12)


def test_no_other_family_has_a_transform():
    with pytest.raises(TheoryError, match="ams has no option transform"):
        embedding("ams", d=8, b=2, transform="fourier")
    with pytest.raises(TheoryError, match="hadamard or fourier, got 'cosine'"):
        embedding("srht", d=8, b=2, transform="cosine")
