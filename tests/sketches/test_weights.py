"""Weighted sketches: unbiased, the promised moments, and no worse than the theorem says anything can be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from desketch import Key, draw
from desketch.errors import SketchError, TheoryError
from desketch.sketches import Weighted
from desketch.theory import embedding
from desketch.theory.weights import adam_weights, best_weights, least_noise, noise, normalised, weighted_alpha_curved

SIZES = (5, 8, 11)
D, B = 24, 6
WEIGHTS = (0.5, 1.0, 2.5)
FAMILIES = ("gaussian", "srht", "ams", "countsketch", "sparse1", "uniform")
POSITIVE = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=8)


def operator(family, seed=0, weights=WEIGHTS):
    return Weighted(draw(family, d=D, b=B, key=Key(seed)), weights, SIZES)


def diagonal(weights=WEIGHTS):
    return np.repeat(weights, SIZES)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_r_between_the_inverse_weights_and_the_weights(family):
    W, R = operator(family), draw(family, d=D, b=B, key=Key(0)).to_dense()
    g, s = np.random.default_rng(0).normal(size=(3, D)), np.random.default_rng(1).normal(size=(3, B))
    kept = g.copy()
    np.testing.assert_allclose(W.sketch(g), (g / diagonal()) @ R.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(g, kept)
    np.testing.assert_allclose(W.desketch(s), (s @ R) * diagonal(), rtol=1e-12, atol=1e-12)
    assert W.sketch(torch.from_numpy(g)).shape == (3, B)


def test_a_copy_is_saved_where_it_may_be_overwritten():
    W, g = operator("srht"), torch.randn(D, generator=torch.Generator().manual_seed(0))
    plain, out, scaled = W.sketch(g), torch.empty(D), g.clone()
    assert torch.equal(W.sketch(scaled, overwrite=True), plain)
    torch.testing.assert_close(scaled, g / torch.from_numpy(diagonal()).float())
    assert W.desketch(plain, out=out) is out


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_energy_and_curved_energy_are_the_promised_ones(family):
    """z-scores over many keys of the mean, the energy and the energy in a curved metric."""
    draws = 3000
    rng = np.random.default_rng(3)
    g, A = rng.normal(size=D), rng.normal(size=(D, D))
    H = A @ A.T / D
    used = np.stack([operator(family, k).desketch(operator(family, k).sketch(g)) for k in range(draws)])
    W = operator(family)
    error = (used - g) @ rng.normal(size=(D, 8))
    assert (np.abs(error.mean(0)) / (error.std(0) / draws**0.5) < 4.5).all()
    energy = (used**2).sum(1)
    parts = [float((part**2).sum()) for part in np.split(g, np.cumsum(SIZES)[:-1])]
    assert abs(energy.mean() - W.energy(parts)) < 4.5 * energy.std() / draws**0.5
    assert W.energy(parts) <= (1 + W.alpha) * (g @ g)
    top = np.linalg.eigvalsh(H)[-1]
    ratio = float(np.trace(np.diag(diagonal() ** 2) @ H)) / top
    curved = np.einsum("ni,ij,nj->n", used, H, used)
    slack = 4.5 * curved.std() / draws**0.5
    assert curved.mean() - slack <= (1 + W.alpha_curved(ratio)) * top * (g @ g)


@pytest.mark.parametrize("family", FAMILIES)
def test_alpha_is_attained_on_the_lightest_tensor_and_is_the_familys_without_weights(family):
    W = operator(family)
    lightest = [1.0, 0.0, 0.0]
    assert W.energy(lightest) == pytest.approx(1 + W.alpha)
    assert operator(family, weights=(1.0,) * 3).alpha == pytest.approx(embedding(family, d=D, b=B).alpha)
    assert operator(family, weights=(3.0,) * 3).alpha == pytest.approx(embedding(family, d=D, b=B).alpha)


@pytest.mark.parametrize("options", [{"block": 8}, {"transform": "fourier"}])
def test_other_layouts_stay_below_their_alpha(options):
    rng, draws = np.random.default_rng(5), 1500
    for g in (np.eye(D)[0], rng.normal(size=D)):
        used = []
        for k in range(draws):
            W = Weighted(draw("srht", d=D, b=B, key=Key(k), **options), WEIGHTS, SIZES)
            used.append(float((W.desketch(W.sketch(g)) ** 2).sum()))
        assert np.mean(used) - 4.5 * np.std(used) / draws**0.5 <= (1 + W.alpha) * (g @ g)


@given(POSITIVE, st.randoms(use_true_random=False))
def test_no_weights_beat_the_best_ones(tensors, random):
    norms, curvatures = zip(*tensors, strict=True)
    best = best_weights(norms, curvatures)
    assert noise(norms, curvatures, best) == pytest.approx(least_noise(norms, curvatures), rel=1e-9)
    other = [D * random.uniform(0.2, 5) for D in best]
    assert noise(norms, curvatures, other) >= least_noise(norms, curvatures) * (1 - 1e-9)
    assert noise(norms, curvatures, [3 * D for D in best]) == pytest.approx(least_noise(norms, curvatures), rel=1e-9)


@given(st.lists(st.tuples(st.floats(1e-6, 1e-1), st.integers(1, 500)), min_size=1, max_size=8))
def test_adam_and_sgd_have_the_weights_of_the_theorem(tensors):
    """Curvature n_l v_l; Adam moves every coordinate alike, SGD in proportion to the gradient's size."""
    v, sizes = zip(*tensors, strict=True)
    curvatures = [n * x for x, n in zip(v, sizes, strict=True)]
    adam = normalised(best_weights([n**0.5 for n in sizes], curvatures), sizes)
    assert adam_weights(v, sizes) == pytest.approx(adam, rel=1e-6)
    sgd = normalised(best_weights([(n * x) ** 0.5 for x, n in zip(v, sizes, strict=True)], curvatures), sizes)
    assert sgd == pytest.approx([1.0] * len(v), rel=1e-9)
    assert sum(D * D * n for D, n in zip(adam, sizes, strict=True)) == pytest.approx(sum(sizes))


def test_adams_weights_stay_in_range_where_a_tensor_has_seen_no_gradient():
    assert adam_weights([0.0, 0.0], [3, 4]) == [1.0, 1.0]
    light, heavy = adam_weights([1.0, 0.0], [3, 4])
    assert heavy / light == pytest.approx(1e6**0.25)


@pytest.mark.parametrize(
    "bad", [((1.0, 2.0), SIZES), ((1.0, 2.0, 0.0), SIZES), ((1.0, 2.0, float("nan")), SIZES), (WEIGHTS, (5, 8, 12))]
)
def test_bad_weights_are_refused(bad):
    with pytest.raises(SketchError):
        Weighted(draw("srht", d=D, b=B, key=Key(0)), *bad)


def test_bad_moments_are_refused():
    with pytest.raises(TheoryError):
        adam_weights([1.0, float("nan")], [1, 1])
    with pytest.raises(TheoryError):
        best_weights([1.0], [0.0])
    with pytest.raises(TheoryError):
        weighted_alpha_curved(embedding("srht", d=D, b=B), 100.0, trace=24.0, smallest=1.0, largest=1.0)
