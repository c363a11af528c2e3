"""Messages changed on their way, in both directions: each is taken, or refused by a WireError that says why.

Bits are flipped, pieces cut, repeated and put elsewhere, checksums left wrong or made right again; facts, agreements
and checkpoints are replaced inside envelopes that are in order, as a peer with bad intent would.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import struct

import parties
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import WireError
from desketch.session.agreement import Agreement
from desketch.session.protocol import REASON_LIMIT, Order, Reply, State, _envelope, _open
from desketch.session.short import ShortReply, is_short
from desketch.wire import peek, run_id, split

EXAMPLES = int(os.environ.get("DESKETCH_EXAMPLES", "60"))  # of each test; raise it for a longer search
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

small = st.integers(-(2**40), 2**40)
junk = st.recursive(
    st.none() | st.booleans() | small | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def orders():
    """Orders a client sees in a run: the first, a usual one, a stranger's, and one with a checkpoint."""
    session, nodes = parties.server(), {100 + c: parties.client(c) for c in range(2)}
    first = session.order(100)
    for _ in range(2):
        parties.play(session, nodes)
    usual, stranger = parties.ordered(session, 100).pack(), session.order(999)
    short = session.order(100)
    whole = dataclasses.replace(
        Order.unpack(stranger), checkpoint=session.server.replica.checkpoint(), broadcasts=(), since=0
    )
    return [first, usual, stranger, whole.pack(), short]


def replies():
    session, node = parties.server(), parties.client(0)
    trained = node.answer(session.order(100))
    session.receive(100, trained)
    short = node.answer(session.order(100))
    synced = node.answer(session.order(100, train=False))
    failed = dataclasses.replace(Reply.unpack(trained), state=State.FAILED, frame=None, reason="disk full").pack()
    return [trained, synced, failed, short]


ORDERS, REPLIES = orders(), replies()


def mended(message):
    """The frames of a message with right checksums, as far as it can be cut into frames."""
    import zlib

    out = b""
    try:
        for frame in split(message):
            body = bytes(frame[:-4])
            out += body + struct.pack("<I", zlib.crc32(body))
    except WireError:
        return message
    return out


@st.composite
def mutated(draw, messages):
    """A message after a few accidents."""
    data = bytearray(draw(st.sampled_from(messages)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 40))
        match draw(st.sampled_from(["flip", "cut", "insert", "repeat", "overwrite", "head"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "head" if data:  # where the facts are
                data[draw(st.integers(0, min(len(data) - 1, 70)))] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + length]
            case "insert":
                data[at:at] = draw(st.binary(max_size=40))
            case "repeat":
                data[at:at] = data[at : at + length]
            case "overwrite":
                piece = draw(st.binary(max_size=40))
                data[at : at + len(piece)] = piece
    return mended(bytes(data)) if draw(st.booleans()) else bytes(data)


def taken_by_the_server(data):
    """A fresh server that waits for nodes 100 and 101; it never raises, and the honest client is counted."""
    session = parties.server()
    session.order(100), session.order(101)
    session.receive(101, data)
    session.receive(100, REPLIES[0])
    return session


@MANY
@given(mutated(REPLIES))
def test_no_reply_raises_on_the_server_or_keeps_the_honest_client_out(data):
    session = taken_by_the_server(data)
    if 0 not in session.frames:  # then node 101 showed client 0's own token first, or sent this very frame first
        reply = Reply.unpack(data)  # a short one of a node that is nobody yet cannot do this
        assert (reply.client == 0 and reply.token) or reply.frame == Reply.unpack(REPLIES[0]).frame


@MANY
@given(st.binary(max_size=80), st.binary(max_size=30))
def test_no_facts_of_a_status_raise_on_the_server(facts, rest):
    head = Reply.unpack(REPLIES[0])
    session = taken_by_the_server(_envelope(head.run, head.d, head.t, "update", facts) + rest)
    assert all(math.isfinite(seconds) for seconds in session._tally.seconds)
    assert all(len(reason) < 2 * REASON_LIMIT for reason in session._tally.refused.values())


def answered(data, client=None):
    """What a client makes of an order: a reply that can be read, or a WireError."""
    client = client or parties.client(0)
    try:
        reply = client.answer(data)
        return ShortReply.unpack(reply) if is_short(reply) else Reply.unpack(reply)
    except WireError:
        return None


@MANY
@given(mutated(ORDERS))
def test_no_order_raises_anything_else_on_the_client(data):
    client = parties.client(0)
    client.answer(ORDERS[0])
    answered(data, client)
    assert answered(ORDERS[2], client) is not None  # and it still works


@MANY
@given(st.binary(min_size=25, max_size=25), st.integers(0, 5))
def test_no_facts_of_an_order_raise_anything_else_on_the_client(facts, t):
    order = Order.unpack(ORDERS[0])
    rest = ORDERS[0][len(next(split(ORDERS[0]))) :]
    answered(_envelope(order.run, order.d, t, "broadcast", facts) + rest)


def with_agreement(data, d=None):
    """The first order, with another agreement and the run id that goes with it."""
    order = Order.unpack(ORDERS[0])
    try:
        parsed = Agreement.from_json(data)
        run, d = parsed.run, parsed.d
    except Exception:  # what is tested is the client's own reading of it
        run = run_id(data)
    return dataclasses.replace(order, run=run, d=d if d and 0 < d < 2**40 else order.d, agreement=data).pack()


def replaced(tree, path, value):
    """The tree with something else at a path of it."""
    tree, place = copy.deepcopy(tree), None
    node = tree
    for step in path:
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        place, key = node, keys[step % len(keys)]
        node = node[key]
    if place is None:
        return value
    place[key] = value
    return tree


@MANY
@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), junk)
def test_no_agreement_raises_anything_else_on_the_client(path, value):
    facts = json.loads(Order.unpack(ORDERS[0]).agreement)
    answered(with_agreement(json.dumps(replaced(facts, path, value)).encode()))


@MANY
@given(st.binary(max_size=60))
def test_no_bytes_for_an_agreement_raise_anything_else(data):
    answered(with_agreement(data))


@MANY
@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), junk | st.just(torch.zeros(3)))
def test_no_checkpoint_raises_anything_else_or_damages_the_replica(path, value):
    order = Order.unpack(ORDERS[3])
    state = replaced(unpack_tree(order.checkpoint), path, value)
    client = parties.client(0)
    client.answer(ORDERS[0])
    before = client.replica.digest()
    reply = answered(dataclasses.replace(order, checkpoint=pack_tree(state)).pack(), client)
    assert reply.state is not State.FAILED or client.replica.digest() == before
    assert answered(ORDERS[3], client).state is State.TRAINED


def test_nested_brackets_are_refused():
    assert answered(with_agreement(b"[" * 200_000)).state is State.FAILED


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, -1.0, 3e38])
def test_seconds_that_no_client_spends_are_refused(seconds):
    session, reply = parties.server(), Reply.unpack(REPLIES[0])
    session.order(101)
    session.receive(101, dataclasses.replace(reply, seconds=seconds).pack())
    assert "seconds" in session._tally.refused["node 101"]
    assert not session._tally.seconds


def test_thirty_megabytes_of_reason_are_refused_and_a_long_one_is_shortened():
    reply = Reply.unpack(REPLIES[2])
    head = next(split(REPLIES[2]))
    facts = _open(head, "update")
    long = _envelope(reply.run, reply.d, reply.t, "update", facts + b"x" * 30_000_000)
    session = parties.server()
    session.order(101)
    session.receive(101, long)
    assert "at most 1000" in session._tally.refused["node 101"]
    assert len(session._tally.refused["node 101"]) < 200
    shown = Reply.unpack(dataclasses.replace(reply, reason="é" * 5000).pack()).reason
    assert shown.startswith("ééé")
    assert len(shown.encode(errors="replace")) <= REASON_LIMIT + 2


def test_an_agreement_of_another_run_leaves_the_client_as_it_is():
    client = parties.client(0)
    client.answer(ORDERS[0])
    before = client.agreement
    other = dataclasses.replace(Order.unpack(ORDERS[0]), run=1234, agreement=parties.agreement(seed=8).to_json())
    assert answered(other.pack(), client).state is State.STRANGER
    assert client.agreement is before


def test_orders_that_lead_nowhere_are_refused():
    order = Order.unpack(ORDERS[1])
    assert order.broadcasts
    for changes in (
        {"since": order.upto + 1, "broadcasts": ()},
        {"t": order.upto},
        {"broadcasts": order.broadcasts[:1] * 2},
    ):
        with pytest.raises(WireError, match=r"order: round|broadcasts: one after"):
            Order.unpack(dataclasses.replace(order, **changes).pack())
    head = next(split(ORDERS[1]))
    facts = bytearray(_open(head, "broadcast"))
    facts[0] |= 0x40
    fields = peek(head)
    with pytest.raises(WireError, match="unknown flags"):
        Order.unpack(_envelope(fields.run, fields.d, fields.round, "broadcast", bytes(facts)))
