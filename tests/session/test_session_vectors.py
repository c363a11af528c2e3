"""Session spec v2: clients and server hold the vectors, each by itself and byte for byte."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from desketch.keys import Key
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.server import ServerSession
from desketch.wire import Header, lengthen, open_short, shorten, unpack

sys.path.insert(0, str(Path(__file__).parents[1] / "vectors"))
import make_session

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "session.json").read_text())
SAID = [[*after["messages"]] for after in VECTORS["rounds"]] + [VECTORS["last"]]


def vector(text):
    return torch.from_numpy(np.frombuffer(bytes.fromhex(text), "<f4").copy())


class Recorded(make_session.Trainer):
    """A client that gives the updates of the vectors, and makes nothing by itself."""

    def start(self, agreement):
        return vector(VECTORS["w0"]) if VECTORS["clients"][self.client]["makes_w0"] else None

    def update(self, w, t):
        return vector(VECTORS["updates"][self.client][t - 1]), VECTORS["clients"][self.client]["weight"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_client_answers_the_orders_of_the_vectors(number, monkeypatch):
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    store = MemoryStore()
    store.token = bytes.fromhex(VECTORS["clients"][number]["token"])
    session = ClientSession(number, Recorded(number), store)
    for said in [one for messages in SAID for one in messages if one["client"] == number]:
        assert session.answer(bytes.fromhex(said["order"])).hex() == said["reply"]
    assert session.agreement.to_json().decode() == VECTORS["agreement"]
    assert session.replica.digest() == VECTORS["rounds"][-1]["digest"]


def test_a_server_gives_the_orders_of_the_vectors_and_ends_each_round_at_their_digest():
    deal = Agreement.from_json(VECTORS["agreement"].encode())
    assert deal.run == VECTORS["run"]
    session = ServerSession(deal, vector(VECTORS["w0"]))
    for t, messages in enumerate(SAID, start=1):
        train = t <= len(VECTORS["rounds"])
        for said in messages:
            assert session.order(said["client"], train=train).hex() == said["order"]
            assert session.receive(said["client"], bytes.fromhex(said["reply"])).value == said["outcome"]
        if train:
            session.close()
            assert session.digest() == VECTORS["rounds"][t - 1]["digest"]


def test_the_vectors_show_what_they_are_for():
    orders = [bytes.fromhex(one["order"]) for messages in SAID for one in messages]
    assert {order[0] for order in orders} == {0xDE, 0x60 | 2, 0x60 | 3}
    assert max(map(len, orders[:3])) > 4 * 100  # w0, to the client that cannot make it
    assert [one["client"] for one in VECTORS["rounds"][1]["messages"]] == [0]
    assert VECTORS["rounds"][0]["messages"][1]["outcome"] == "again"


def test_the_script_writes_the_vectors():
    with patch("time.perf_counter", lambda: 0.0):
        assert {**make_session.run(), "frames": make_session.frames()} == VECTORS


@pytest.mark.parametrize("case", VECTORS["frames"], ids=lambda case: case["name"])
def test_short_frames_hold_the_vectors(case):
    header = Header(**{**case["header"], "key": Key.from_bits(bytes.fromhex(case["header"]["key"]))})
    short, full, agreed = bytes.fromhex(case["short"]), bytes.fromhex(case["full"]), case["agreed"]
    opened, payload = open_short(short, header, agreed=agreed)
    assert opened.weight == header.weight
    assert bytes(unpack(full, header)[1]) == bytes(payload)
    assert shorten(header, bytes(payload), agreed=agreed) == short
    assert lengthen(short, header, agreed=agreed) == full
