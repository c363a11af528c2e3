"""A client's id belongs to its node, by enrolment or by who was there first; the honest client is still counted."""

from __future__ import annotations

import dataclasses
import random

import parties
import pytest
import torch

from desketch.errors import WireError
from desketch.session.client import FolderStore
from desketch.session.identity import LARGEST_ID, Identities
from desketch.session.protocol import Reply
from desketch.session.server import Outcome, ServerSession
from desketch.wire import Wire

ENROLLED = {100 + client: client for client in range(parties.CLIENTS)}
MODES = {"enrolled": ENROLLED, "first come": None}


def server(mode, **changes):
    deal = parties.agreement(**changes)
    who = Identities(parties.CLIENTS, MODES[mode])
    return ServerSession(deal, parties.flat_model().flatten(), identities=who)


def clients():
    return {100 + number: parties.client(number) for number in range(parties.CLIENTS)}


def claiming(client, number):
    """The node's own reply, under another id."""

    class Claims:
        def answer(self, request):
            return dataclasses.replace(parties.told(client, client.answer(request)), client=number).pack()

    return Claims()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["before the honest one", "after it"])
@pytest.mark.parametrize("number", [0, 4, 4_000_000_000])
def test_a_node_that_claims_another_id_is_refused_and_the_honest_client_counts(mode, order, number):
    session, nodes = server(mode), clients()
    parties.play(session, nodes)
    nodes[103] = claiming(nodes[103], number)
    asked = [103, 100, 101, 102] if order.startswith("before") else [100, 101, 102, 103]
    report = parties.play(session, nodes, asked=asked)
    assert report.participants == (0, 1, 2)
    assert list(report.refused) == ["client 3"]
    assert str(number) in report.refused["client 3"]


@pytest.mark.parametrize("mode", MODES)
def test_a_newcomer_cannot_be_a_client_that_is_there(mode):
    session, nodes = server(mode), clients()
    parties.play(session, nodes)
    nodes[200] = parties.client(0)  # no folder of client 0: another token
    report = parties.play(session, nodes, asked=[200, 100, 101, 102, 103])
    assert report.participants == (0, 1, 2, 3)
    assert list(report.refused) == ["node 200"]
    assert "client 0" in report.refused["node 200"]


def test_only_enrolled_nodes_are_asked_at_all():
    session = server("enrolled")
    assert session.homes([99, 100, 101, 200]) == [100, 101]
    assert server("first come").homes([99, 100]) == [99, 100]


@pytest.mark.parametrize("codec", ["int8", "int4", "sign1"])
@pytest.mark.parametrize("wrap", ["the whole reply", "the frame in its own reply"])
def test_a_replay_in_the_same_round_is_refused(codec, wrap):
    session, nodes = server("first come", wire=Wire(b=200, codec=codec)), clients()
    parties.play(session, nodes)
    heard = {}

    class Overheard:
        def answer(self, request):
            heard["reply"] = clients_zero.answer(request)
            return heard["reply"]

    class Replays:
        def answer(self, request):
            own, other = parties.told(mallory, mallory.answer(request)), parties.told(clients_zero, heard["reply"])
            return heard["reply"] if wrap == "the whole reply" else dataclasses.replace(own, frame=other.frame).pack()

    clients_zero, mallory = nodes[100], nodes[103]
    nodes[100], nodes[103] = Overheard(), Replays()
    report = parties.play(session, nodes)
    assert report.participants == (0, 1, 2)
    assert ("check:" if wrap == "the whole reply" else "client 0") in report.refused["client 3"]


@pytest.mark.parametrize("later", ["honest", "copy"])
def test_the_salt_tells_who_made_a_frame_whichever_came_first(later):
    session, nodes = server("first come", wire=Wire(b=200, codec="sign1")), clients()
    first = {node: party.answer(session.order(node)) for node, party in nodes.items()}
    honest, own = Reply.unpack(first[100]), Reply.unpack(first[103])
    copy = dataclasses.replace(own, frame=honest.frame).pack()
    for node, data in [(103, copy), (100, first[100])] if later == "honest" else [(100, first[100]), (103, copy)]:
        session.receive(node, data)
    assert set(session.frames) == {0}
    assert "client 0's frame" in session.close().refused["client 3"]


def test_two_clients_with_nothing_to_say_are_no_copies():
    session = server("first come", wire=Wire(b=200, codec="int4"))
    channel = session._channel
    for client in (0, 1):
        frame = channel.encode_updates(1, torch.zeros(1, channel.d), clients=[client], weights=[1.0])[0]
        reply = Reply.unpack(parties.client(client).answer(session.order(100 + client)))
        assert session.receive(100 + client, dataclasses.replace(reply, frame=frame).pack()) is Outcome.DONE
    assert set(session.frames) == {0, 1}


def test_a_client_with_its_folder_comes_back_at_once_and_one_without_when_its_node_is_gone(tmp_path):
    session, nodes = server("first come"), clients()
    nodes[100] = parties.client(0, store=FolderStore(tmp_path))
    parties.play(session, nodes)
    # client 0 restarts under a new node id while Flower still takes the old one for connected
    nodes[900] = parties.client(0, store=FolderStore(tmp_path))
    report = parties.play(session, nodes, asked=[900, 101, 102, 103])
    assert report.participants == (0, 1, 2, 3)
    # client 1 lost its disk: refused while its old node is there, let in when it has not answered a round
    nodes[901] = parties.client(1)
    session.order(101)  # asked, and silent
    assert parties.play(session, nodes, asked=[901, 900, 102, 103]).participants == (0, 2, 3)
    assert parties.play(session, nodes, asked=[901, 900, 102, 103]).participants == (0, 1, 2, 3)


def test_bindings_outlive_the_server(tmp_path):
    first = parties.server(tmp_path)
    nodes = {100 + c: parties.client(c, store=FolderStore(tmp_path / str(c))) for c in range(2)}
    parties.play(first, nodes)
    second = parties.server(tmp_path)
    rogue = parties.client(0)
    assert second.receive(500, rogue.answer(second.order(500))) is Outcome.REFUSED
    assert second.receive(501, nodes[100].answer(second.order(501))) is not Outcome.REFUSED


def test_the_token_is_private_and_kept(tmp_path):
    one, two = FolderStore(tmp_path), FolderStore(tmp_path)
    assert one.token == two.token
    assert len(one.token) == 16
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    (tmp_path / "token").write_bytes(b"short")
    assert len(FolderStore(tmp_path).token) == 16


def test_whatever_the_order_of_claims_nobody_becomes_two_clients():
    """Random claims by random nodes with random tokens: a node keeps its client, a client with a holder keeps it."""
    draw = random.Random(3)
    for _ in range(200):
        who, node_of, token_of = Identities(4), {}, {}
        for _ in range(30):
            node, client, token = draw.randrange(6), draw.randrange(-1, 6), bytes([draw.randrange(3)]) * 16
            expected = 0 <= client < 4 and node_of.get(node, client) == client
            expected &= node in node_of or token_of.get(client, token) == token
            try:
                who.admit(node, client, token)
                assert expected
                node_of[node] = client
                token_of.setdefault(client, token)
            except WireError:
                assert not expected


def test_ids_without_a_public_number_have_31_bits():
    who = Identities()
    who.admit(1, LARGEST_ID, b"t" * 16)
    with pytest.raises(WireError, match=r"got id 4000000000, expected 0\.\.2147483647"):
        who.admit(2, 4_000_000_000, b"t" * 16)
    with pytest.raises(WireError, match="shows no token"):
        who.admit(3, 5, b"")


def test_a_client_that_fails_at_first_contact_says_why():
    session, client = server("first come"), parties.client(2)
    client.trainer.seed = None
    client.trainer.start = lambda agreement: torch.zeros(3)
    session.receive(102, client.answer(session.order(102)))
    assert "the model has 3 weights" in session.close().refused["client 2"]


def test_a_second_frame_of_a_client_is_refused_even_if_it_differs():
    session, client = server("first come"), parties.client(0)
    reply = Reply.unpack(client.answer(session.order(100)))
    assert session.receive(100, reply.pack()) is Outcome.DONE
    delta = torch.ones(1, session._channel.d)
    other = session._channel.encode_updates(1, delta, clients=[0], weights=[1.0])[0]
    assert session.receive(100, dataclasses.replace(reply, frame=other).pack()) is Outcome.REFUSED
    assert session.frames == {0: reply.frame}
