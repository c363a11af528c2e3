"""Small parties for the protocol tests: digits, a tiny MLP, sessions that talk through plain function calls."""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn

from desketch.core.flat import FlatModel
from desketch.fed.engine import LoopEngine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.tensor_client import tensor_clients
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.protocol import TOKEN_SIZE, Order, Reply, half
from desketch.session.server import Outcome, ServerSession
from desketch.session.short import ShortOrder, ShortReply, is_short
from desketch.tasks.goals import Classification
from desketch.wire import Wire

CLIENTS = 4
WORK = LocalWork(steps=10, eta=0.2, batch=32)


@cache
def digits():
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return x[order], y[order]


def flat_model(seed=0):
    torch.manual_seed(seed)
    return FlatModel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))


def client_data(client):
    x, y = digits()
    return ClientData(client, x[:1400][client::CLIENTS], y[:1400][client::CLIENTS])


def agreement(**changes):
    model = flat_model()
    facts = {"name": "test", "seed": 7, "names": model.names, "shapes": model.shapes, "optimizer": "sgd"}
    return Agreement(**{**facts, "wire": Wire(b=200, codec="int4"), **changes})


class DigitsTrainer:
    """Trains on its share of the digits; ``seed=None`` cannot make w0."""

    def __init__(self, client, seed=0):
        self.model, self.data, self.seed = flat_model(), client_data(client), seed

    def start(self, agreement):
        return None if self.seed is None else flat_model(self.seed).flatten()

    def channel(self, agreement):
        return agreement.channel()

    @property
    def participant(self):
        return tensor_clients([self.data], LoopEngine(self.model), WORK)[0]


def server(folder=None, **changes):
    return ServerSession(agreement(**changes), flat_model().flatten(), folder=folder)


def client(number, store=None, seed=0):
    return ClientSession(number, DigitsTrainer(number, seed), store or MemoryStore())


def returning(number):
    """A client whose process starts anew: it has forgotten all but the token in its folder."""
    store = MemoryStore()
    store.token = bytes([number]) * TOKEN_SIZE
    return client(number, store)


def told(party, data):
    """What a client answered, in full."""
    if not is_short(data):
        return Reply.unpack(data)
    facts = {"run": party.agreement.run, "d": party.agreement.d, "t": party.replica.version + 1}
    return ShortReply.unpack(data).full(**facts, client=party.client, digest=half(party.replica.digest()))


def ordered(session, node, **options):
    """The order for a node, in full."""
    data = session.order(node, **options)
    if not is_short(data):
        return Order.unpack(data)
    facts = {"run": session.agreement.run, "d": session.agreement.d, "t": session.t + 1}
    return ShortOrder.unpack(data).full(**facts, digest=half(session.digest()))


def play(session, nodes, *, asked=None, train=True):
    """One round over function calls; ``nodes`` maps a node id to anything with ``answer``."""
    session.identities.connected(nodes)
    for node in asked if asked is not None else nodes:
        for _ in range(3):
            if session.receive(node, nodes[node].answer(session.order(node, train=train))) is not Outcome.AGAIN:
                break
    return session.close() if train else None


def accuracy(session):
    x, y = digits()
    return Classification(10).evaluate(flat_model(), session.w, x[1400:], y[1400:])["accuracy"]
