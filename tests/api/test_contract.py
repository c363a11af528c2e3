"""One contract: a counting client is asked, and a counting server aggregates, the same way by every engine."""

from __future__ import annotations

import pytest
import torch

from desketch.fed import Federation, SketchChannel, make_optimizer, run
from desketch.fed import client as contract
from desketch.keys import Key
from desketch.mesh.gossip import GossipMesh
from desketch.mesh.rounds import run_mesh
from desketch.mesh.topology import build_topology
from desketch.mesh.tree import TreeMesh
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.server import ServerSession
from desketch.wire import Wire

D, N, ROUNDS = 40, 4, 3


class Counting:
    """Asks to move every weight by its id; remembers when it was asked."""

    def __init__(self, client):
        self.client, self.asked = client, []

    def update(self, w, t):
        assert w.shape == (D,)
        self.asked.append(t)
        return torch.full((D,), float(self.client + 1)), 1.0


class CountingChannel(SketchChannel):
    """Counts what the server's side of it is asked for."""

    calls: list

    def aggregate(self, t, frames):
        self.calls.append((t, sorted(frames)))
        return super().aggregate(t, frames)


def parts():
    clients = [Counting(c) for c in range(N)]
    channel = CountingChannel(d=D, b=D, key=Key(1), codec="f32")
    channel.calls = []
    return clients, {
        "clients": clients,
        "channel": channel,
        "optimizer": make_optimizer("sgd", eta_global=1.0),
        "w0": torch.zeros(D),
    }


def in_process():
    clients, made = parts()
    federation = Federation(**made)
    run(federation, rounds=ROUNDS)
    assert made["channel"].calls == [(t, list(range(N))) for t in (1, 2, 3)]
    return clients, federation.model_vector


def over_a_mesh(kind):
    clients, made = parts()
    mesh = kind(topology=build_topology("ring", N), **made)
    run_mesh(mesh, rounds=ROUNDS)
    return clients, mesh.model_vector


class Trainer:
    def __init__(self, participant):
        self.participant = participant

    def start(self, agreement):
        return torch.zeros(D)

    def channel(self, agreement):
        return agreement.channel()


def over_sessions(agreement):
    clients = [Counting(c) for c in range(N)]
    server = ServerSession(agreement, torch.zeros(D))
    nodes = {c: ClientSession(c, Trainer(clients[c]), MemoryStore()) for c in range(N)}
    for _ in range(ROUNDS):
        for node, session in nodes.items():
            server.receive(node, session.answer(server.order(node)))
        assert server.close().participants == tuple(range(N))
    return clients, server.w


@pytest.fixture
def agreement():
    return Agreement(
        name="test",
        seed=1,
        names=["w"],
        shapes=[[D]],
        wire=Wire(b=D, codec="f32"),
        optimizer="sgd",
        eta_global=1.0,
    )


@pytest.mark.parametrize("engine", ["in-process", "tree", "gossip", "session"])
def test_every_engine_asks_every_client_once_a_round(engine, agreement, monkeypatch):
    encoded, plain = [], contract._check

    def check(participant, *rest, **named):
        encoded.append(participant.client)
        plain(participant, *rest, **named)

    monkeypatch.setattr(contract, "_check", check)
    engines = {
        "in-process": in_process,
        "tree": lambda: over_a_mesh(TreeMesh),
        "gossip": lambda: over_a_mesh(GossipMesh),
        "session": lambda: over_sessions(agreement),
    }
    clients, w = engines[engine]()
    assert [client.asked for client in clients] == [[1, 2, 3]] * N
    assert sorted(encoded) == sorted(list(range(N)) * ROUNDS), "every update went through encode_updates"
    monkeypatch.undo()
    expected = in_process()[1]
    assert float((w - expected).norm() / expected.norm()) < (0.2 if engine == "gossip" else 1e-4)
