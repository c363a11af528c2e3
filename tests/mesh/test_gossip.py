"""Averaging without a server: exact over a tree, within the Chebyshev bound by gossip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import desketch
from desketch.errors import InputError
from desketch.mesh.averaging import chebyshev_bound, gossip, hops_for, tree_mean
from desketch.mesh.topology import build_topology

SPECS = ["ring", "grid", "tree", "star", "regular:4", "erdos:0.4", "smallworld:4,0.2"]


def _problem(n=24, b=5, seed=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, b)), rng.uniform(0.5, 2.0, size=n)


@pytest.mark.parametrize("spec", SPECS)
def test_tree_mean_is_the_weighted_mean(spec):
    values, weights = _problem()
    topology = build_topology(spec, 24, seed=1)
    mean, total = tree_mean(values, weights, topology.spanning_tree(topology.components()[0]))
    np.testing.assert_allclose(mean, np.average(values, axis=0, weights=weights), rtol=1e-12)
    assert total == pytest.approx(weights.sum())


def test_a_node_of_weight_zero_forwards_but_adds_nothing():
    values, weights = _problem()
    weights[7] = 0.0
    values[7] = 1e9
    topology = build_topology("ring", 24)
    mean, _ = tree_mean(values, weights, topology.spanning_tree(topology.components()[0]))
    np.testing.assert_allclose(mean, np.average(values, axis=0, weights=weights))
    with pytest.raises(InputError, match="weight"):
        tree_mean(values, np.zeros(24), topology.spanning_tree(topology.components()[0]))


@pytest.mark.parametrize("family", desketch.FAMILIES)
def test_linearity_mean_of_sketches_is_sketch_of_the_mean(family):
    deltas, weights = _problem(b=70)
    R = desketch.draw(family, d=70, b=9, key=desketch.Key(5))
    topology = build_topology("grid", 24)
    mean, _ = tree_mean(R.sketch(deltas), weights, topology.spanning_tree(topology.components()[0]))
    np.testing.assert_allclose(mean, R.sketch(np.average(deltas, axis=0, weights=weights)), atol=1e-9)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("hops", [1, 3, 10])
def test_gossip_disagreement_is_within_its_bound(spec, hops):
    values, _ = _problem()
    result = gossip(values, np.ones(24), build_topology(spec, 24, seed=1), hops=hops)
    mean = values.mean(axis=0)
    np.testing.assert_allclose(result.means.mean(axis=0), mean, atol=1e-9)  # nothing is lost or counted twice
    assert np.linalg.norm(result.means - mean) <= result.bound * np.linalg.norm(values - mean) * (1 + 1e-9)


@pytest.mark.parametrize("spec", SPECS)
def test_enough_hops_reach_the_tolerance_also_with_weights(spec):
    values, weights = _problem()
    topology = build_topology(spec, 24, seed=1)
    result = gossip(values, weights, topology, hops=hops_for(topology.mixing, 1e-6))
    np.testing.assert_allclose(
        result.means, np.broadcast_to(np.average(values, axis=0, weights=weights), values.shape), atol=1e-4
    )


def test_gossip_on_a_partitioned_graph_averages_each_component():
    values, weights = _problem()
    split = build_topology("ring", 24).without(edges=[0, 12])
    result = gossip(values, weights, split, hops=hops_for(split.mixing, 1e-9))
    for part in split.components():
        expected = np.average(values[part], axis=0, weights=weights[part])
        np.testing.assert_allclose(result.means[part], np.broadcast_to(expected, (len(part), 5)), atol=1e-6)


@given(st.floats(0.01, 0.999), st.floats(1e-9, 0.9))
def test_hops_are_the_fewest_that_reach_the_tolerance(mixing, tolerance):
    hops = hops_for(mixing, tolerance)
    assert chebyshev_bound(mixing, hops) <= tolerance * (1 + 1e-6)
    assert hops == 1 or chebyshev_bound(mixing, hops - 1) > tolerance * (1 - 1e-6)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0])
def test_bad_tolerances_are_refused(tolerance):
    with pytest.raises(InputError, match="tolerance"):
        hops_for(0.5, tolerance)
