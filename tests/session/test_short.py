"""Short orders and replies: how little they add, and what they notice."""

from __future__ import annotations

import dataclasses

import parties
import pytest
import torch

from desketch.errors import WireError
from desketch.session.protocol import Reply, State
from desketch.session.short import CANNOT_FOLLOW, ShortReply, is_short, nearest, pack_reply
from desketch.wire import Wire


@pytest.mark.parametrize("b", [848, 424])
def test_an_ordinary_round_adds_eleven_bytes_up_and_ten_down(b):
    sizes = {c: float(len(parties.client_data(c).y)) for c in range(4)}
    deal = parties.agreement(wire=Wire(b=b), known_weights=True)
    session = parties.ServerSession(deal, parties.flat_model().flatten(), sizes=sizes)
    nodes = {100 + c: parties.client(c) for c in range(4)}
    for party in nodes.values():
        party.trainer.channel = lambda agreement: agreement.channel(sizes=sizes)
    parties.play(session, nodes)
    order = session.order(100)
    reply = nodes[100].answer(order)
    signs = -(-b // 8)
    assert (len(order), len(reply)) == (signs + 10, signs + 11)
    assert b != 848 or 11 / len(reply) < 0.12


def test_other_weights_of_a_client_are_noticed_and_healed():
    session, nodes = parties.server(), {100 + c: parties.client(c) for c in range(4)}
    parties.play(session, nodes)
    nodes[100].replica.w[3] += 1e-6
    order = session.order(100)
    assert is_short(order)
    assert nodes[100].answer(order) == bytes((CANNOT_FOLLOW, 2))
    report = parties.play(session, nodes)
    assert report.participants == (0, 1, 2, 3)
    assert not report.refused


def test_a_wrong_check_is_asked_for_in_full_and_then_named():
    session, nodes = parties.server(), {100 + c: parties.client(c) for c in range(4)}
    parties.play(session, nodes)
    good = nodes[100].answer(session.order(100))
    bad = bytearray(good)
    bad[-1] ^= 1
    assert session.receive(100, bytes(bad)) is parties.Outcome.AGAIN
    order = session.order(100)
    assert not is_short(order)
    full = nodes[100].answer(order)
    assert Reply.unpack(full).frame == good[5:]  # the same update, in full
    assert session.receive(100, full) is parties.Outcome.DONE
    nodes[101].answer(session.order(101))
    assert session.receive(101, bytes(bad)) is parties.Outcome.AGAIN
    assert session.receive(101, bytes(bad)) is parties.Outcome.REFUSED


def test_a_repeated_order_gets_the_same_bytes_also_after_a_restart():
    session, nodes = parties.server(), {100 + c: parties.client(c) for c in range(4)}
    parties.play(session, nodes)
    order = session.order(100)
    first = nodes[100].answer(order)
    assert nodes[100].answer(order) == first
    again = parties.client(0, nodes[100].store)
    again.trainer = None  # it does not train again
    assert again.answer(order) == first


def test_a_stranger_and_a_late_order_are_told_in_two_bytes_and_move_nothing():
    session, nodes = parties.server(), {100 + c: parties.client(c) for c in range(4)}
    parties.play(session, nodes)
    late = session.order(100)
    assert parties.client(0).answer(late) == bytes((CANNOT_FOLLOW, 2))
    for _ in range(2):
        parties.play(session, nodes)
    before, version = nodes[100].replica.digest(), nodes[100].replica.version
    assert nodes[100].answer(late) == bytes((CANNOT_FOLLOW, 2))
    assert (nodes[100].replica.digest(), nodes[100].replica.version) == (before, version)


def test_rounds_and_seconds_survive_one_byte():
    assert all(nearest(t & 0xFF, t + off) == t for t in (1, 127, 128, 255, 256, 5000) for off in (-100, 0, 1, 100))
    base = Reply(run=1, d=10, t=5, state=State.TRAINED, client=3, version=4, frame=b"x")
    for seconds in (0.0, 1e-4, 0.003, 1.0, 77.0, 3600.0):
        told = ShortReply.unpack(pack_reply(dataclasses.replace(base, seconds=seconds))).seconds
        assert told == pytest.approx(seconds, rel=0.05)
    assert pack_reply(dataclasses.replace(base, version=3)) is None
    assert torch.isfinite(torch.tensor(told))


def test_a_reply_that_is_read_says_what_was_sent_in_every_code_of_seconds():
    facts = {"run": 1, "d": 10, "t": 5, "client": 3, "digest": bytes(16)}
    base = Reply(**facts, state=State.TRAINED, version=4, frame=b"x")
    for code in range(256):
        seconds = 0.0 if code == 0 else 1e-4 * 2 ** ((code - 1) / 8)
        data = pack_reply(dataclasses.replace(base, seconds=seconds))
        assert data[4] == code
        assert pack_reply(ShortReply.unpack(data).full(**facts)) == data
    for wrong in ({"t": 6}, {"t": 261}, {"client": 4}, {"run": 2}, {"d": 11}, {"digest": bytes(15) + b"1"}):
        with pytest.raises(WireError, match="check:"):
            ShortReply.unpack(data).full(**{**facts, **wrong})
