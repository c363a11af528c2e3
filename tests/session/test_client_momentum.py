"""Running means in sessions: as in process, kept in the client's folder, entered once, lost without harm."""

from __future__ import annotations

import parties

from desketch.fed.engine import LoopEngine
from desketch.fed.rounds import Federation, run
from desketch.fed.tensor_client import tensor_clients
from desketch.session.client import FolderStore
from desketch.session.server import Outcome

MEANS = {"client_momentum": 0.8, "optimizer": "momentum"}


def in_process(rounds):
    deal, model = parties.agreement(**MEANS), parties.flat_model()
    data = [parties.client_data(c) for c in range(parties.CLIENTS)]
    federation = Federation(
        clients=tensor_clients(data, LoopEngine(model), parties.WORK),
        channel=deal.channel(),
        optimizer=deal.make_optimizer(),
        memory=deal.memory(),
        w0=model.flatten(),
    )
    run(federation, rounds=rounds)
    return federation.digest()


def clients(tmp_path):
    return {100 + c: parties.client(c, FolderStore(tmp_path / str(c))) for c in range(parties.CLIENTS)}


def test_restarted_sessions_give_the_weights_of_the_in_process_run_bit_for_bit(tmp_path):
    session = parties.server(**MEANS)
    for _ in range(6):
        parties.play(session, clients(tmp_path))  # every process of every client starts anew in every round
    assert session.server.replica.digest() == in_process(6)


def test_an_update_enters_the_mean_once_even_if_the_round_is_asked_for_again(tmp_path):
    session, nodes = parties.server(folder=tmp_path / "server", **MEANS), clients(tmp_path)
    for _ in range(3):
        parties.play(session, nodes)
    session.identities.connected(nodes)
    lost = [nodes[node].answer(session.order(node)) for node in nodes]  # the server dies with the answers
    session = parties.server(folder=tmp_path / "server", **MEANS)
    nodes = clients(tmp_path)
    again = {}
    session.identities.connected(nodes)
    for node in nodes:
        reply = nodes[node].answer(session.order(node))
        if session.receive(node, reply) is Outcome.AGAIN:
            reply = nodes[node].answer(session.order(node))
            session.receive(node, reply)
        again[node] = reply
    frames = [bytes(answer) for answer in lost]
    assert all(frames[i][-60:] == again[node][-60:] for i, node in enumerate(nodes))
    session.close()
    parties.play(session, nodes)
    assert session.server.replica.digest() == in_process(5)


def test_a_client_that_lost_its_folder_goes_on(tmp_path):
    session, nodes = parties.server(**MEANS), clients(tmp_path)
    for _ in range(8):
        parties.play(session, nodes)
    token = nodes[100].store.token
    fresh = FolderStore(tmp_path / "elsewhere")
    fresh.token = token
    nodes[100] = parties.client(0, fresh)
    for _ in range(22):
        report = parties.play(session, nodes)
    assert report.participants == (0, 1, 2, 3)
    assert parties.accuracy(session) > 0.8


def test_a_fixed_step_sends_means_without_the_extra_number():
    deal = parties.agreement(**MEANS, eta_global=1.0)
    assert not deal.channel().along
    assert parties.agreement(**MEANS).channel().along
    assert deal.run != parties.agreement(eta_global=1.0, optimizer="momentum").run
