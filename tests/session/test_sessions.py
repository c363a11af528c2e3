"""The protocol without a carrier: equal to the in-process run; absentees, restarts, resumption, hostile replies."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random

import parties
import pytest
import torch

from desketch.errors import InputError, RunError, WireError
from desketch.fed.engine import LoopEngine
from desketch.fed.replica import digest
from desketch.fed.robust import weighted_mean
from desketch.fed.rounds import Federation, run
from desketch.fed.tensor_client import tensor_clients
from desketch.session.agreement import Agreement, WrappedApp
from desketch.session.client import FolderStore, Kept, MemoryStore
from desketch.session.protocol import Order, Reply, State, half
from desketch.session.server import Outcome
from desketch.wire import Wire, shorten


def four(**options):
    return {100 + c: parties.client(c, **options) for c in range(parties.CLIENTS)}


def digests(nodes):
    return {node.replica.digest() for node in nodes.values()}


def in_process(rounds):
    deal = parties.agreement()
    model = parties.flat_model()
    data = [parties.client_data(c) for c in range(parties.CLIENTS)]
    federation = Federation(
        clients=tensor_clients(data, LoopEngine(model), parties.WORK),
        channel=deal.channel(),
        optimizer=deal.make_optimizer(),
        w0=model.flatten(),
    )
    run(federation, rounds=rounds)
    return federation


def test_sessions_give_the_weights_of_the_in_process_run_bit_for_bit():
    session, nodes = parties.server(), four()
    for _ in range(5):
        report = parties.play(session, nodes)
        assert report.participants == (0, 1, 2, 3)
        assert not report.refused
    parties.play(session, nodes, train=False)
    assert digests(nodes) == {session.server.replica.digest()} == {in_process(5).server.replica.digest()}


def test_training_learns():
    session, nodes = parties.server(), four()
    for _ in range(30):
        parties.play(session, nodes)
    assert parties.accuracy(session) > 0.8


def test_only_frames_travel_and_they_are_small():
    session, nodes = parties.server(), four()
    first, second = parties.play(session, nodes), parties.play(session, nodes)
    payload = 200 // 2  # int4
    assert second.bytes_up / 4 < payload + 120
    assert second.bytes_down / 4 < payload + 120
    assert first.bytes_down / 4 < 700  # the agreement, once


def test_a_client_without_w0_gets_it_once():
    session, nodes = parties.server(), four(seed=None)
    first, second = parties.play(session, nodes), parties.play(session, nodes)
    assert first.participants == (0, 1, 2, 3)
    assert first.bytes_down > 4 * 4 * session.agreement.d
    assert second.bytes_down < 4 * 300


def test_a_first_order_names_the_digest_of_w0_and_who_makes_it_is_sent_no_weights():
    session = parties.server()
    able, unable, other = (parties.client(c, seed=seed) for c, seed in enumerate([0, None, 1]))
    first = Order.unpack(session.order(100))
    assert (first.since, first.upto, first.digest) == (0, 0, half(digest(parties.flat_model().flatten())))
    sent = {party.client: exchanged(session, 100 + party.client, party) for party in (able, unable, other)}
    assert [order.checkpoint is None for order in sent[0]] == [True]
    assert [order.checkpoint is None for order in sent[1]] == [True, False]
    assert [order.checkpoint is None for order in sent[2]] == [True, False]
    assert session.close().participants == (0, 1, 2)
    assert {party.replica.digest() for party in (able, unable, other)} == {digest(parties.flat_model().flatten())}


@pytest.mark.parametrize(("seed", "whole"), [(0, False), (1, True), (None, True)])
def test_a_newcomer_of_a_later_round_is_sent_weights_only_if_it_cannot_make_w0(seed, whole):
    session, nodes = parties.server(), four()
    for _ in range(3):
        parties.play(session, nodes, asked=[100, 101])
    late = parties.client(2, seed=seed)
    orders = exchanged(session, 102, late)
    assert any(order.checkpoint is not None for order in orders) is whole
    assert late.replica.digest() == session.digest()


def exchanged(session, node, party):
    """The full orders that a newcomer was sent until it had trained."""
    orders, outcome = [], Outcome.AGAIN
    while outcome is Outcome.AGAIN:
        data = session.order(node)
        orders.append(Order.unpack(data))
        outcome = session.receive(node, party.answer(data))
    assert outcome is Outcome.DONE
    return orders


def test_a_wrong_w0_heals_by_a_checkpoint():
    session, nodes = parties.server(), four()
    nodes[100] = parties.client(0, seed=1)
    report = parties.play(session, nodes)
    assert report.participants == (0, 1, 2, 3)
    parties.play(session, nodes, train=False)
    assert digests(nodes) == {session.server.replica.digest()}


def test_absentees_catch_up_by_broadcasts():
    session, nodes = parties.server(), four()
    for t in range(8):
        parties.play(session, nodes, asked=[100 + t % 4, 100 + (t + 1) % 4])
    parties.play(session, nodes, train=False)
    assert digests(nodes) == {session.server.replica.digest()}


def test_a_restarted_client_with_its_folder_and_one_without(tmp_path):
    session, nodes = parties.server(), four()
    nodes[100] = parties.client(0, store=FolderStore(tmp_path))
    for _ in range(3):
        parties.play(session, nodes)
    # both restart and register as new nodes; one finds its state on disk, the other starts from w0
    nodes[900], nodes[901] = parties.client(0, store=FolderStore(tmp_path)), parties.client(1)
    assert nodes[900].replica.version == 2
    del nodes[100], nodes[101]
    report = parties.play(session, nodes)
    assert sorted(report.participants) == [0, 1, 2, 3]
    parties.play(session, nodes, train=False)
    assert digests(nodes) == {session.server.replica.digest()}


def test_a_damaged_store_counts_as_none(tmp_path):
    (tmp_path / "replica.safetensors").write_bytes(b"rubbish")
    assert FolderStore(tmp_path).load() is None
    FolderStore(tmp_path).save(Kept(b"agreement", b"replica" * 9, 7))
    assert FolderStore(tmp_path).load().serial == 7
    data = (tmp_path / "replica.safetensors").read_bytes()
    for place in range(len(data)):
        (tmp_path / "replica.safetensors").write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        assert FolderStore(tmp_path).load() is None


def test_the_server_resumes_bit_for_bit(tmp_path):
    whole, nodes = parties.server(), four()
    for _ in range(6):
        parties.play(whole, nodes)
    first, nodes = parties.server(tmp_path), four()
    for _ in range(3):
        parties.play(first, nodes)
    first.order(100)  # killed in the middle of a round
    second = parties.server(tmp_path)
    assert second.resumed
    assert second.t == 3
    renamed = {node + 50: party for node, party in nodes.items()}  # a new SuperLink gives new node ids
    for _ in range(3):
        parties.play(second, renamed)
    assert second.server.replica.digest() == whole.server.replica.digest()
    with pytest.raises(RunError, match="another configuration"):
        parties.server(tmp_path, seed=8)


def test_a_server_whose_state_is_gone_or_rotten_says_so(tmp_path):
    """A flipped bit used to load another w in a quarter of the cases; the state before the last takes its place."""
    session, nodes = parties.server(tmp_path), {100 + c: parties.returning(c) for c in range(4)}
    for _ in range(2):
        parties.play(session, nodes)
    newest = tmp_path / "checkpoint" / "round-000002.safetensors"
    data, rng = newest.read_bytes(), random.Random(0)
    for _ in range(300):
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        newest.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        with pytest.warns(UserWarning, match="is damaged: going on from the checkpoint of round 1"):
            assert parties.server(tmp_path).t == 1
    with pytest.warns(UserWarning, match="damaged"):
        again = parties.server(tmp_path)
    parties.play(again, {100 + c: parties.returning(c) for c in range(4)})
    assert again.digest() == session.digest()
    for path in (tmp_path / "checkpoint").iterdir():
        path.unlink()
    assert not parties.server(tmp_path).resumed
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no checkpoint in"):
        parties.server(tmp_path)


def test_a_server_that_starts_over_takes_its_clients_along():
    session, nodes = parties.server(), four()
    for _ in range(3):
        parties.play(session, nodes)
    again = parties.server()
    report = parties.play(again, nodes)
    assert report.participants == (0, 1, 2, 3)


class Liar:
    """A client whose replies are altered on their way."""

    def __init__(self, inner, alter):
        self.inner, self.alter = inner, alter

    def answer(self, request):
        return self.alter(parties.told(self.inner, self.inner.answer(request)))


def other_run_frame(reply):
    channel = parties.agreement(seed=8).channel()
    delta = torch.ones(1, channel.d)
    return channel.encode_updates(reply.t, delta, clients=[0], weights=[1.0])[0]


def nan_frame(reply):
    """A frame whose f16 payload holds a NaN, with a right checksum."""
    channel = parties.agreement(wire=Wire(b=200, codec="f16")).channel()
    return shorten(channel.header(reply.t, "update"), b"\x80" + b"\x00\x7e" * 200)


HOSTILE = {
    "garbage": lambda reply: b"\x00" * 80,
    "empty": lambda reply: b"",
    "cut": lambda reply: reply.pack()[:-7],
    "flipped bit": lambda reply: reply.pack()[:-20] + bytes([reply.pack()[-20] ^ 1]) + reply.pack()[-19:],
    "a later round": lambda reply: dataclasses.replace(reply, t=reply.t + 1).pack(),
    "stale frame": lambda reply: dataclasses.replace(reply, frame=stale_frame(reply)).pack(),
    "another run": lambda reply: dataclasses.replace(reply, run=reply.run ^ 1).pack(),
    "another run's frame": lambda reply: dataclasses.replace(reply, frame=other_run_frame(reply)).pack(),
    "no frame": lambda reply: dataclasses.replace(reply, frame=None).pack(),
    "other weights": lambda reply: dataclasses.replace(reply, digest=bytes(16)).pack(),
    "somebody else": lambda reply: dataclasses.replace(reply, client=0).pack(),
    "failed": lambda reply: dataclasses.replace(reply, state=State.FAILED, frame=None, reason="disk full").pack(),
}


def stale_frame(reply):
    channel = parties.agreement().channel()
    return channel.encode_updates(reply.t + 1, torch.ones(1, channel.d), clients=[3], weights=[1.0])[0]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_refused_by_name_and_the_round_goes_on(name):
    session, nodes = parties.server(), four()
    parties.play(session, nodes)
    honest = parties.server()
    honest_nodes = four()
    parties.play(honest, honest_nodes)
    nodes[103] = Liar(nodes[103], HOSTILE[name])
    report = parties.play(session, nodes)
    parties.play(honest, honest_nodes, asked=[100, 101, 102])
    assert report.participants == (0, 1, 2)
    assert len(report.refused) == 1
    # the rest of the round is exactly a round in which the liar was absent
    assert session.server.replica.digest() == honest.server.replica.digest()


def test_a_nan_is_refused():
    session = parties.server(wire=Wire(b=200, codec="f16"))
    nodes = four()
    nodes[103] = Liar(nodes[103], lambda reply: dataclasses.replace(reply, frame=nan_frame(reply)).pack())
    report = parties.play(session, nodes)
    assert report.participants == (0, 1, 2)
    assert torch.isfinite(session.w).all()


def test_a_reply_nobody_asked_for_and_a_second_reply_are_refused():
    session, nodes = parties.server(), four()
    reply = nodes[100].answer(session.order(100))
    session.receive(100, reply)
    session.receive(100, reply)
    session.receive(777, nodes[101].answer(session.order(101)))
    report = session.close()
    assert report.participants == (0,)
    assert list(report.refused) == ["node 777"]
    assert report.silent == 1


def test_a_repeated_and_a_late_reply_change_nothing():
    """Carriers repeat and delay: neither counts, neither is held against its client, and a late one is waited for."""
    session, nodes = parties.server(), four()
    late = nodes[101].answer(session.order(101))
    parties.play(session, {100: nodes[100]})
    order = session.order(101)
    assert session.receive(101, late) is parties.Outcome.IGNORED
    reply = nodes[101].answer(order)
    assert session.receive(101, reply) is parties.Outcome.AGAIN  # its round 1 was lost with the late reply
    trained = nodes[101].answer(session.order(101))
    assert session.receive(101, trained) is parties.Outcome.DONE
    assert session.receive(101, trained) is parties.Outcome.IGNORED
    report = session.close()
    assert (report.participants, report.refused, report.silent) == ((1,), {}, 0)


def test_an_empty_round_is_recorded_and_changes_nothing():
    session, nodes = parties.server(), four()
    parties.play(session, nodes)
    before = session.server.replica.digest()
    report = parties.play(session, nodes, asked=[])
    assert (report.participants, report.digest, report.round) == ((), before, 2)
    parties.play(session, nodes)
    parties.play(session, nodes, train=False)
    assert digests(nodes) == {session.server.replica.digest()}


def test_messages_survive_their_bytes():
    order = Order(
        run=5, d=100, t=7, since=3, upto=6, digest=bytes(range(16)), agreement=b"{}", checkpoint=b"c" * 300, train=False
    )
    assert Order.unpack(order.pack()) == order
    reply = Reply(run=5, d=100, t=7, state=State.FAILED, client=9, version=6, digest=bytes(16), reason="why")
    assert Reply.unpack(reply.pack()) == reply
    for cut in range(1, len(order.pack())):
        with pytest.raises(WireError):
            Order.unpack(order.pack()[:cut])


def test_an_agreement_survives_its_json_and_names_the_run():
    deal = parties.agreement()
    back = Agreement.from_json(deal.to_json())
    assert back.run == deal.run
    assert back.d == deal.d
    assert back.to_json() == deal.to_json()
    assert parties.agreement(wire=Wire(b=200)).run != deal.run
    assert parties.agreement(wire=Wire(compression=deal.d / 200, codec="int4", codec_down="int4")).run == deal.run
    changes = {"name": "other", "seed": 8, "wire": Wire(b=199, codec="int4"), "optimizer": "adam"}
    others = {parties.agreement(**{field: value}).run for field, value in changes.items()}
    assert len(others - {deal.run}) == len(changes)  # frames of any other agreement are refused by their run id
    with pytest.raises(RunError):
        Agreement.from_json(b'{"what": 1}')
    with pytest.raises(RunError, match="codec"):
        Agreement.from_json(deal.to_json().replace(b"int4", b"int3"))
    with pytest.raises(InputError, match="bytes is not JSON"):
        parties.agreement(app=WrappedApp(train={"key": b"x"})).to_json()


def test_a_session_reloads_what_it_stored():
    session, store = parties.server(), MemoryStore()
    nodes = {100: parties.client(0, store=store)}
    parties.play(session, nodes)
    parties.play(session, nodes)
    assert parties.client(0, store=store).replica.digest() == nodes[100].replica.digest()


def test_the_sum_does_not_depend_on_who_was_faster():
    """Sketches whose float64 sum depends on its order, arriving in every order: one result."""
    rows = torch.tensor([1e10, 1e-8, -1e10, 1e-4])[:, None].expand(4, 200)
    seen, unsorted = set(), set()
    for order in itertools.permutations(range(4)):
        session, nodes = parties.server(wire=Wire(b=200, codec="f32"), robust="none"), four()
        channel = session.server.replica.channel
        frames = channel.encode_sketches(1, rows, clients=range(4), weights=[1.0] * 4)
        for c in order:
            alter = functools.partial(dataclasses.replace, frame=frames[c])
            nodes[100 + c] = Liar(nodes[100 + c], lambda reply, alter=alter: alter(reply).pack())
        report = parties.play(session, nodes, asked=[100 + c for c in order])
        assert report.participants == (0, 1, 2, 3)
        seen.add(report.digest)
        unsorted.add(float(weighted_mean(rows[list(order)], torch.ones(4))[0]))
    assert len(seen) == 1
    assert len(unsorted) > 1  # or this test could not fail


def test_of_two_nodes_of_one_client_the_newer_is_asked():
    session, nodes = parties.server(), four()
    parties.play(session, nodes)
    nodes[200] = nodes.pop(100)  # restarted: Flower lists both ids for a while
    parties.play(session, nodes)
    assert session.homes([100, 101, 102, 103, 200, 300]) == [101, 102, 103, 200, 300]
    assert session.homes([100, 101]) == [100, 101]  # unless the newer is gone


def test_what_was_sent_is_not_taken_for_received():
    """An order that was lost on its way costs the client nothing: the next one carries what it misses."""
    session, nodes = parties.server(), four()
    parties.play(session, nodes)
    session.order(100)  # lost, with the broadcast of round 1
    parties.play(session, nodes, asked=[101, 102, 103])
    reply = parties.told(nodes[100], nodes[100].answer(session.order(100)))
    assert reply.state is State.TRAINED


def test_an_agreement_of_another_run_is_not_joined():
    """An order that names one run and carries the agreement of another leaves the client a stranger."""
    session, other = parties.server(), parties.agreement(seed=8)
    order = dataclasses.replace(Order.unpack(session.order(100)), agreement=other.to_json())
    assert Reply.unpack(parties.client(0).answer(order.pack())).state is State.STRANGER


def test_an_agreement_s_codecs_go_their_own_ways():
    channel = parties.agreement(wire=Wire(b=200, codec="int8", codec_down="f16")).channel()
    assert (channel.header(1, "update").codec, channel.header(1, "broadcast").codec) == ("int8", "f16")


def test_a_frame_of_a_node_that_was_only_greeted_does_not_count():
    """A node outside the cohort is brought up to date; an update it sends all the same is refused."""
    session, twin, nodes = parties.server(), parties.server(), four()
    trained = nodes[100].answer(twin.order(100))  # the same run and round, asked by another server
    session.order(100, train=False)
    assert session.receive(100, trained) is parties.Outcome.REFUSED
    assert session.close().participants == ()
