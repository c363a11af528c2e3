"""Training without a server: a tree equals the server mode, gossip stays near it, failures lose and double nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from desketch.core.flat import FlatModel
from desketch.errors import ConfigError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import encode_updates
from desketch.fed.engine import VmapEngine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.optimizers import make_optimizer
from desketch.fed.rounds import Federation, Observer, run
from desketch.fed.tensor_client import tensor_clients
from desketch.keys import Key
from desketch.mesh.costs import AccessLink, protocol_costs
from desketch.mesh.gossip import GossipMesh
from desketch.mesh.rounds import Failures, run_mesh
from desketch.mesh.topology import Topology, build_topology
from desketch.mesh.tree import TreeMesh

N = 12


def _parts(codec="int4", optimizer="momentum", eta_global="auto"):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model = FlatModel(module)
    rng = np.random.default_rng(1)
    teacher = rng.normal(size=(6, 3))
    clients = []
    for c in range(N):
        x = rng.normal(size=(20 + c, 6)) + 0.3 * c / N
        clients.append(ClientData(c, torch.tensor(x).float(), torch.tensor((x @ teacher).argmax(1))))
    x, y = torch.cat([c.x for c in clients]), torch.cat([c.y for c in clients])
    sizes = {client.client: client.weight for client in clients}
    return {
        "clients": tensor_clients(clients, VmapEngine(model), LocalWork(steps=3, eta=0.1, batch=8)),
        "channel": SketchChannel(d=model.d, b=model.d // 3, key=Key(3), codec=codec, agreed=sizes),
        "optimizer": make_optimizer(optimizer, eta_global=eta_global),
        "w0": model.flatten(),
        "evaluate": lambda w: model.evaluate(w, x, y),
    }


class _Rows(Observer):
    def __init__(self):
        self.rows = []

    def on_round(self, record):
        self.rows.append(record)


def _rows(mesh, rounds):
    watch = _Rows()
    run_mesh(mesh, rounds=rounds, observer=watch)
    return watch.rows


@pytest.mark.parametrize("codec", ["f32", "int4", "sign1"])
@pytest.mark.parametrize("graph", ["star", "ring", "grid", "regular:3"])
def test_exact_mode_gives_the_replicas_of_the_server_mode(graph, codec):
    served = Federation(**_parts(codec))
    run(served, rounds=8)
    mesh = TreeMesh(topology=build_topology(graph, N, seed=2), **_parts(codec))
    _rows(mesh, 8)
    torch.testing.assert_close(mesh.model_vector, served.server.replica.w, rtol=1e-4, atol=1e-5)
    assert len(mesh.replicas()) == 1


def test_bytes_and_hops_of_a_star_are_those_of_a_server():
    mesh = TreeMesh(topology=build_topology("star", N), **_parts())
    (record,) = _rows(mesh, 1)
    watch = _Rows()
    run(Federation(**_parts()), rounds=1, observer=watch)
    (served,) = watch.rows
    # one of the twelve is the hub itself: it sends nothing to itself
    assert record.hops == 2
    assert record.bytes_up == pytest.approx(served.bytes_up * (N - 1) / N, rel=0.02)
    assert record.bytes_down == pytest.approx(served.bytes_down * (N - 1) / N, rel=0.02)


def test_gossip_replicas_stay_close_and_learn():
    mesh = GossipMesh(topology=build_topology("regular:4", N, seed=2), tolerance=1e-3, **_parts("f32"))
    rows = _rows(mesh, 25)
    exact = _rows(TreeMesh(topology=build_topology("regular:4", N, seed=2), **_parts("f32")), 25)
    assert rows[-1].metrics["loss"] < rows[0].metrics["loss"]
    assert rows[-1].metrics["loss"] == pytest.approx(exact[-1].metrics["loss"], rel=0.1)
    assert rows[-1].consensus < 0.05 * float((mesh.model_vector - mesh.w0).norm())


def test_the_displacement_term_is_what_keeps_replicas_together():
    class Drifting(GossipMesh):
        def correct(self, replica, R, z):
            pass

    topology = build_topology("ring", N)
    drift = _rows(Drifting(topology=topology, tolerance=0.2, **_parts("f32")), 40)
    held = _rows(GossipMesh(topology=topology, tolerance=0.2, **_parts("f32")), 40)
    assert drift[-1].consensus > 1.5 * drift[5].consensus
    assert held[-1].consensus < 0.7 * drift[-1].consensus


@pytest.mark.parametrize("kind", [TreeMesh, GossipMesh])
@pytest.mark.filterwarnings("ignore:round")
def test_failures_do_not_stop_learning(kind):
    mesh = kind(topology=build_topology("grid", N), failures=Failures(nodes=0.1, edges=0.15, seed=4), **_parts("f32"))
    rows = _rows(mesh, 40)
    assert any(row.components > 1 for row in rows)
    assert any(row.dropped > 0 for row in rows)
    assert rows[-1].metrics["loss"] < 0.75 * rows[0].metrics["loss"]


@pytest.mark.filterwarnings("ignore:round")
def test_after_failures_heal_all_nodes_share_one_replica():
    class Healing(Failures):
        def strike(self, t, topology):
            return super().strike(t, topology) if t < 10 else (topology, frozenset())

    mesh = TreeMesh(topology=build_topology("ring", N), failures=Healing(nodes=0.2, edges=0.2, seed=1), **_parts())
    rows = _rows(mesh, 11)
    assert max(row.consensus for row in rows) > 0
    assert rows[-1].consensus == 0
    assert len(mesh.replicas()) == 1
    assert any(row.bytes_catch_up > 0 for row in rows)


class _Split(Failures):
    """A ring cut in two halves in rounds 2 and 3, whole otherwise."""

    def strike(self, t, topology):
        if t not in (2, 3):
            return topology, frozenset()
        half = N // 2
        cut = [i for i, (a, b) in enumerate(topology.edges.tolist()) if (a < half) != (b < half)]
        return topology.without(edges=cut), frozenset()


def test_a_partition_warns_goes_on_and_merges_by_training_weight():
    mesh = TreeMesh(topology=build_topology("ring", N), failures=_Split(), **_parts("f32", "sgd", 0.3))
    with pytest.warns(UserWarning, match="2 components"):
        _rows(mesh, 3)
    (a, _), (b, _) = mesh.replicas()
    halves = {id(mesh.branches[0].replica): range(N // 2), id(mesh.branches[-1].replica): range(N // 2, N)}
    weight = {key: sum(mesh.clients[c].weight for c in nodes) for key, nodes in halves.items()}
    total = sum(weight.values())
    expected = a.w * (weight[id(a)] / total) + b.w * (weight[id(b)] / total)
    record = _rows(mesh, 4)[0]
    assert record.components == 1
    assert record.bytes_catch_up > 0
    merged_before_round_4 = mesh.branches[0].replica.w - _last_step(mesh, expected)
    torch.testing.assert_close(merged_before_round_4, expected, rtol=1e-4, atol=1e-6)


def _last_step(mesh, w):
    """The step of round 4, recomputed from the merged w by the server mode."""
    parts = _parts("f32", "sgd", 0.3)
    frames, _ = encode_updates(parts["clients"], parts["channel"], w, t=4)
    step = parts["channel"].aggregate(4, frames)
    return 0.3 * parts["channel"].decode_broadcast(4, step.broadcast).vector


def test_a_node_that_was_down_is_equal_again_and_pays_for_what_it_missed():
    class Nap(Failures):
        def strike(self, t, topology):
            return (topology.without(nodes=[5]), frozenset({5})) if t in (3, 4) else (topology, frozenset())

    mesh = TreeMesh(topology=build_topology("regular:4", N, seed=2), failures=Nap(), **_parts())
    rows = _rows(mesh, 6)
    broadcast = rows[0].bytes_down / (N - 1)
    assert [row.dropped for row in rows] == [0, 0, 1, 1, 0, 0]
    assert [row.bytes_catch_up for row in rows] == [0, 0, 0, 0, pytest.approx(2 * broadcast), 0]
    assert len(mesh.replicas()) == 1


@pytest.mark.parametrize("kind", [TreeMesh, GossipMesh])
@pytest.mark.filterwarnings("ignore:round")
def test_a_run_resumes_from_its_state(kind):
    def build():
        failures = Failures(nodes=0.2, edges=0.2, seed=3)
        return kind(topology=build_topology("grid", N), failures=failures, **_parts())

    whole = build()
    _rows(whole, 9)
    first, second = build(), build()
    _rows(first, 5)
    second.load_state_dict(first.state_dict())
    _rows(second, 9)
    assert torch.equal(second.model_vector, whole.model_vector)
    np.testing.assert_array_equal(second.bytes_per_node, whole.bytes_per_node)


def test_bad_input_is_refused():
    parts = _parts()
    with pytest.raises(ConfigError, match="needs 8 clients"):
        TreeMesh(topology=build_topology("ring", 8), **parts)
    with pytest.raises(ConfigError, match="not connected"):
        TreeMesh(topology=Topology("two halves", N, np.array([[0, 1]])), **_parts())


def test_costs_of_a_tree_are_those_that_a_run_counts():
    mesh = TreeMesh(topology=build_topology("tree", N), **_parts("int4"))
    (record,) = _rows(mesh, 1)
    frame = record.bytes_down // (N - 1)
    link = AccessLink(bits_per_second=1e6, latency=0.01)
    served, tree, gossiped = protocol_costs(
        mesh.topology, frame=frame, partial=mesh.partial_bytes(), exchange=100, hops=7, link=link
    )
    assert tree.hops == record.hops
    assert tree.bytes_total == pytest.approx(record.bytes_up + record.bytes_down, rel=0.02)
    assert served.seconds == pytest.approx(2 * (0.01 + 8 * N * frame / 1e6))
    assert gossiped.bytes_total == 2 * len(mesh.topology.edges) * 100 * 7
    assert tree.bytes_busiest < served.bytes_busiest
