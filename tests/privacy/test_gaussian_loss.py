"""The loss distribution of one release, in closed form, against the one that dp-accounting computes."""

from __future__ import annotations

import numpy as np
import pytest

from desketch.privacy.gaussian_loss import add_remove_loss, divergence

# sampling rate, noise multiplier
RELEASES = [(0.064, 1.1), (1.0, 2.0), (0.001, 0.6), (0.5, 5.0), (0.999, 1.0), (1e-6, 0.5), (0.01, 20.0), (0.3, 0.3)]
CASES = [(q, z, removed) for q, z in RELEASES for removed in (True, False)]


@pytest.mark.parametrize(("q", "z", "removed"), CASES)
def test_the_divergence_is_the_library_s(q: float, z: float, removed: bool) -> None:
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    kind = AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    epsilon = np.concatenate([np.linspace(-8, 8, 161), [np.log1p(-q), -np.log1p(-q)] if q < 1 else []])
    expected = GaussianPrivacyLoss(z, sampling_prob=q, adjacency_type=kind).get_delta_for_epsilon(epsilon)
    found = divergence(epsilon, q, z, removed=removed)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("q", "z"), RELEASES)
def test_composed_it_proves_the_library_s_epsilon(q: float, z: float) -> None:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    coarse = 1e-3
    library = from_gaussian_mechanism(z, value_discretization_interval=coarse, sampling_prob=q).self_compose(20)
    ours = add_remove_loss(q, z, coarse).self_compose(20)
    for delta in (1e-3, 1e-6):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(library.get_epsilon_for_delta(delta), rel=1e-6)


def test_both_directions_count() -> None:
    """Under addition the loss never exceeds -log(1 - q), under removal it does: neither stands for the other."""
    epsilon = np.array([0.2])
    removed, added = (float(divergence(epsilon, 0.1, 0.5, removed=r)[0]) for r in (True, False))
    assert removed > added == 0.0
    below = np.array([-0.2])
    assert divergence(below, 0.1, 0.5, removed=True)[0] < divergence(below, 0.1, 0.5, removed=False)[0]
