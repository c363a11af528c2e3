"""Clients in JavaScript in a session with the Python server: the same weights after every round."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from desketch.core.flat import FlatModel
from desketch.fed import Replica, SketchChannel, make_optimizer
from desketch.keys import Key
from desketch.session.agreement import Agreement
from desketch.session.protocol import Order, Reply, State, half
from desketch.session.rounds import Rounds
from desketch.session.server import ServerSession
from desketch.session.short import CANNOT_FOLLOW, pack_order
from desketch.tasks.data import load_task
from desketch.tasks.models import build_model
from desketch.wire import Wire

ROOT = Path(__file__).parents[2]
LONGEST_SHORT_ORDER = 40


def memory_carrier():
    """The carrier of tests/session."""
    spec = importlib.util.spec_from_file_location("memory_carrier", ROOT / "tests" / "session" / "memory_carrier.py")
    module = sys.modules["memory_carrier"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MemoryCarrier


class Party:
    """A client in a Node process of its own."""

    def __init__(self, node, client, task):
        self.process = subprocess.Popen(
            [node, ROOT / "clients" / "js" / "test" / "party.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        x = task.x_train[client::3].reshape(-1, 64).float().contiguous()
        y = task.y_train[client::3].to(torch.uint8).contiguous()
        data = {"x": x.numpy().tobytes().hex(), "y": y.numpy().tobytes().hex()}
        self._say(json.dumps({"client": client, **data, "work": {"steps": 10, "eta": 0.1, "batch": 32}}))
        self.sizes, self.losses, self.digest, self.trouble = [], [], None, None

    def answer(self, order):
        self._say(order.hex())
        said = json.loads(self.process.stdout.readline())
        reply = bytes.fromhex(said["reply"])
        self.sizes.append((len(order), len(reply)))
        self.losses.append(said.get("loss"))
        self.digest, self.trouble = said.get("digest"), said.get("trouble")
        return reply

    def _say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


@pytest.fixture
def parties(node):
    task = load_task("digits")
    made = {100 + c: Party(node, c, task) for c in range(3)}
    yield made
    for party in made.values():
        party.close()


@pytest.mark.parametrize(
    "settings",
    [{}, {"client_momentum": 0.8}, {"client_momentum": 0.5, "eta_global": 0.3}, {"optimizer": "amsgrad"}],
    ids=["plain", "means", "means without auto", "amsgrad"],
)
def test_clients_in_another_language_train_with_the_python_server(parties, node, settings):
    flat = FlatModel(build_model("mlp:16", load_task("digits"), seed=1))
    agreement = Agreement(
        name="js",
        seed=5,
        names=flat.names,
        shapes=[tuple(s) for s in flat.shapes],
        wire=Wire(compression=10),
        **settings,
    )
    session = ServerSession(agreement, flat.flatten())
    carrier = memory_carrier()(parties)
    rows = []
    rounds = Rounds(session=session, carrier=carrier, clients=3, wait_for=3, seconds=60.0, on_row=rows.append)
    rounds.run(6)
    parties[100].close()  # it forgets all: a checkpoint brings what it needs, the mean of its updates begins anew
    parties[100] = Party(node, 0, load_task("digits"))
    rounds.run(12)
    assert [(row["participants"], row["refused"]) for row in rows] == [(3, {})] * 12
    assert {party.digest for party in parties.values()} == {session.digest()}
    for party in parties.values():
        assert all(order <= LONGEST_SHORT_ORDER for order, _ in party.sizes[3:])  # after w0 everything is short
    trained = [loss for loss in parties[101].losses if loss is not None]
    assert trained[-1] < 0.95 * trained[1]


def bad_orders(agreement):
    """Orders that no right server sends: name -> messages, of which the last must stop a client, and what it says."""
    good = agreement.replica(torch.ones(agreement.d), agreement.channel())
    other = agreement.replica(torch.full((agreement.d,), float("nan")), agreement.channel())
    small = Replica(
        torch.ones(50), optimizer=make_optimizer(), channel=SketchChannel(d=50, b=5, key=Key(1), run=agreement.run)
    )

    def order(t=1, **parts):
        facts = {"run": agreement.run, "d": agreement.d, "since": t - 1, "upto": t - 1}
        parts.setdefault("digest", half(good.digest()))
        return Order(t=t, **{**facts, **parts}).pack()

    first = order(agreement=agreement.to_json(), checkpoint=good.checkpoint())
    huge = agreement.channel().encode_broadcast(1, torch.full((agreement.wire.b,), 1e37))
    return {
        "another model": (
            [order(agreement=agreement.to_json(), checkpoint=small.checkpoint())],
            "it is of another model",
        ),
        "NaN": ([order(agreement=agreement.to_json(), checkpoint=other.checkpoint())], "w holds NaN"),
        "a broken replica": ([first, order(t=2, since=0, broadcasts=((1, huge),))], "beyond"),
        "another run": ([order(agreement=agreement.to_json() + b" ")], "of another run"),
    }


def softmax_agreement():
    flat = FlatModel(build_model("softmax", load_task("digits"), seed=1))
    wire = Wire(compression=10, codec="f32")
    shapes = [tuple(shape) for shape in flat.shapes]
    return Agreement(name="js", seed=5, names=flat.names, shapes=shapes, wire=wire, eta_global=1.0)


def test_a_short_order_that_breaks_the_replica_is_not_followed(node):
    orders, words = bad_orders(softmax_agreement())["a broken replica"]
    party = Party(node, 0, load_task("digits"))
    try:
        assert Reply.unpack(party.answer(orders[0])).state is State.TRAINED
        assert party.trouble is None
        assert party.answer(pack_order(Order.unpack(orders[1]))) == bytes((CANNOT_FOLLOW, 2))
        assert words in party.trouble
    finally:
        party.close()


@pytest.mark.parametrize("name", ["another model", "NaN", "a broken replica", "another run"])
def test_what_no_server_sends_is_refused_by_name_and_nothing_is_trained(node, name):
    orders, words = bad_orders(softmax_agreement())[name]
    party = Party(node, 0, load_task("digits"))
    try:
        replies = [Reply.unpack(party.answer(order)) for order in orders]
        assert [reply.state for reply in replies[:-1]] == [State.TRAINED] * (len(orders) - 1)
        for reply in (replies[-1], Reply.unpack(party.answer(orders[-1]))):  # asked again, the same
            foreign = name == "another run"  # as good as no agreement
            assert (reply.state, reply.frame) == (State.STRANGER if foreign else State.FAILED, None)
            assert foreign or words in reply.reason
            assert words in party.trouble
    finally:
        party.close()
