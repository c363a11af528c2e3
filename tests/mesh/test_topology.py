"""Topologies: named graphs, their trees and their gossip weights."""

import numpy as np
import pytest

from desketch.errors import ConfigError
from desketch.mesh.topology import Topology, build_topology

SPECS = ["ring", "grid", "tree", "tree:3", "star", "regular:4", "erdos:0.4", "smallworld:4,0.2"]


@pytest.fixture(params=SPECS)
def topology(request):
    return build_topology(request.param, 24, seed=1)


def test_a_tree_spans_its_component_along_edges_of_the_graph(topology):
    tree = topology.spanning_tree(topology.components()[0])
    assert sorted(tree.nodes) == list(range(topology.n))
    edges = {tuple(e) for e in topology.edges.tolist()}
    level = dict(zip(tree.nodes.tolist(), tree.level.tolist(), strict=True))
    for node, parent in zip(tree.nodes[1:].tolist(), tree.parent[1:].tolist(), strict=True):
        assert (min(node, parent), max(node, parent)) in edges
        assert level[node] == level[parent] + 1


@pytest.mark.parametrize(("spec", "depth"), [("ring", 12), ("star", 1), ("grid:4", 5), ("tree", 4)])
def test_the_tree_is_rooted_near_the_centre(spec, depth):
    topology = build_topology(spec, 24)
    assert topology.spanning_tree(topology.components()[0]).depth <= depth


def test_metropolis_weights_are_symmetric_and_doubly_stochastic(topology):
    W = topology.metropolis.toarray()
    np.testing.assert_allclose(W, W.T)
    np.testing.assert_allclose(W.sum(axis=0), 1.0)
    assert (W >= 0).all()
    np.testing.assert_array_equal((W > 0) & ~np.eye(24, dtype=bool), topology.adjacency.toarray() > 0)


def test_mixing_is_the_second_eigenvalue(topology):
    values = np.sort(np.abs(np.linalg.eigvalsh(topology.metropolis.toarray())))
    assert topology.mixing == pytest.approx(values[-2])


@pytest.mark.parametrize("n", [600, 2000])
def test_mixing_of_a_large_ring_is_its_closed_form(n):
    # W of a ring is circulant with thirds: eigenvalues (1 + 2 cos(2 pi k / n)) / 3
    exact_gap = (2 - 2 * np.cos(2 * np.pi / n)) / 3
    assert 1 - build_topology("ring", n).mixing == pytest.approx(exact_gap, rel=1e-3)


def test_failures_remove_edges_and_isolate_nodes():
    ring = build_topology("ring", 6)
    cut = ring.without(edges=[0])
    assert len(cut.edges) == 5
    assert len(cut.components()) == 1
    split = ring.without(nodes=[0, 3])
    assert [c.tolist() for c in split.components()] == [[1, 2], [4, 5], [0], [3]]


def test_same_seed_same_graph():
    a, b, c = (build_topology("regular:3", 40, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(a.edges, b.edges)
    assert not np.array_equal(a.edges, c.edges)


def test_edge_list_file(tmp_path):
    file = tmp_path / "edges.txt"
    file.write_text("# a path\n0 1\n1,2\n\n2 3\n")
    assert build_topology(f"file:{file}", 4).edges.tolist() == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n2 3\n", "not connected"),
        ("0 1\n1 2\n2 2\n2 3\n", "self-loop"),
        ("0 1\n1 x\n", "two node numbers"),
        ("0 1\n1 9\n", "0 to 3"),
        ("0 1 2\n", "two node numbers"),
    ],
)
def test_bad_edge_lists_are_refused_with_the_reason(tmp_path, text, message):
    file = tmp_path / "edges.txt"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        build_topology(f"file:{file}", 4)


@pytest.mark.parametrize(
    ("spec", "nodes", "message"),
    [
        ("moebius", 8, "unknown topology"),
        ("ring", 1, "at least 2"),
        ("grid:5", 24, "divide"),
        ("regular:30", 24, "cannot be built"),
        ("regular:x", 24, "number"),
        ("erdos:0", 24, "0 < P"),
        ("erdos:0.001", 24, "not connected"),
        ("file:nowhere.txt", 4, "no edge list"),
    ],
)
def test_bad_specs_are_refused_with_the_reason(spec, nodes, message):
    with pytest.raises(ConfigError, match=message):
        build_topology(spec, nodes)


def test_repr_says_what_it_is():
    assert repr(Topology("ring", 3, np.array([[0, 1], [0, 2], [1, 2]]))) == "Topology(ring, 3 nodes, 3 edges)"
