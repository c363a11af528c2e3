"""Write tests/vectors/session.json, a short run of session messages: ``python tests/vectors/make_session.py``."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import torch

from desketch.keys import Key
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.protocol import TOKEN_SIZE
from desketch.session.server import Outcome, ServerSession
from desketch.wire import Header, Wire, pack, shorten
from desketch.wire.codecs import payload_size

PATH = Path(__file__).with_name("session.json")
KEY = Key(23)
D, B = 100, 20
MAKES_W0 = (True, False)  # client 1 is sent the weights
ROUNDS = [(0, 1), (0,), (0, 1), (0, 1)]  # client 1 is away in round 2, and catches up in round 3


def uniform(key: Key, n: int) -> torch.Tensor:
    """n numbers in [-1/2, 1/2), from a stream of the key."""
    words = torch.tensor([int(w) for w in key.words(n, stream=5)], dtype=torch.float64)
    return (words / 2**32 - 0.5).float()


def first() -> torch.Tensor:
    return uniform(KEY.fold_in("w0"), D)


def agreement() -> Agreement:
    return Agreement(name="vectors", seed=5, names=["weight", "bias"], shapes=[[9, 10], [10]], wire=Wire(b=B))


class Trainer:
    """A client whose updates are drawn from a key, whatever w is; it is its own participant."""

    def __init__(self, client: int) -> None:
        self.client = client

    def start(self, agreement):
        return first() if MAKES_W0[self.client] else None

    def channel(self, agreement):
        return agreement.channel()

    @property
    def participant(self):
        return self

    def update(self, w, t):
        return uniform(KEY.fold_in("update", self.client, t), D), 70.0 + self.client


def client(number: int) -> ClientSession:
    store = MemoryStore()
    store.token = bytes([0xA0 + number]) * TOKEN_SIZE
    return ClientSession(number, Trainer(number), store)


def exchange(session: ServerSession, party: ClientSession, *, train: bool) -> list[dict[str, object]]:
    """The orders to a client and its replies, until it needs no other."""
    said, outcome = [], Outcome.AGAIN
    while outcome is Outcome.AGAIN:
        order = session.order(party.client, train=train)
        with patch("time.perf_counter", lambda: 0.0):  # the seconds of a reply are 0
            reply = party.answer(order)
        outcome = session.receive(party.client, reply)
        said.append({"client": party.client, "order": order.hex(), "reply": reply.hex(), "outcome": outcome.value})
    return said


def run() -> dict[str, object]:
    """Four rounds, and the last broadcast."""
    session = ServerSession(agreement(), first())
    parties = [client(number) for number in range(2)]
    rounds = []
    for asked in ROUNDS:
        said = [one for number in asked for one in exchange(session, parties[number], train=True)]
        session.close()
        rounds.append({"messages": said, "digest": session.digest()})
    last = [one for party in parties for one in exchange(session, party, train=False)]
    return {
        "agreement": agreement().to_json().decode(),
        "run": agreement().run,
        "w0": first().numpy().tobytes().hex(),
        "clients": [
            {"token": party.store.token.hex(), "makes_w0": able, "weight": 70.0 + party.client}
            for party, able in zip(parties, MAKES_W0, strict=True)
        ],
        "updates": [[Trainer(c).update(None, t + 1)[0].numpy().tobytes().hex() for t in range(4)] for c in range(2)],
        "rounds": rounds,
        "last": last,
    }


def frames() -> list[dict[str, object]]:
    """Short frames, each with the full frame that says the same."""
    facts = {"run": 0x01020304, "round": 300, "family": "srht", "d": 51000, "key": Key(2023).fold_in("round", 300)}
    cases = [
        ("the agreed weight", 72.0, 72.0, 11, 0, 0),
        ("a weight of its own", 72.0, 1.0, 11, 0, 0),
        ("a weight of four bytes", 0.1, 1.0, 11, 0, 0),
        ("an extra number", 1.0, 1.0, 11, 0, 1),
        ("a tiny number", 1.0, 1.0, 11, 1, 0),
        ("one byte below the wide check", 1.0, 1.0, 4063, 0, 0),
        ("a wide check", 1.0, 1.0, 4064, 0, 0),
        ("a wide check and a weight", 2.5, 1.0, 4064, 0, 0),
    ]
    made = []
    for name, weight, agreed, b, tiny, extra in cases:
        header = Header(**facts, b=b, codec="int8", weight=weight, tiny=tiny, extra=extra)
        payload = bytes(i * 37 & 0xFF for i in range(payload_size(header)))
        fields = {field: getattr(header, field) for field in Header.__slots__ if field != "key"}
        short, full = shorten(header, payload, agreed=agreed), pack(header, payload)
        fields["key"] = header.key.bits.hex()
        made.append({"name": name, "header": fields, "agreed": agreed, "short": short.hex(), "full": full.hex()})
    return made


if __name__ == "__main__":
    PATH.write_text(json.dumps({**run(), "frames": frames()}, indent=1) + "\n")
