"""Privacy over the protocol: the mechanisms of the in-process engine, charged and recorded before a release."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from desketch.errors import BudgetError, PrivacyError, RunError
from desketch.privacy.record import read_record
from desketch.session.client import ClientSession, FolderStore, MemoryStore
from desketch.session.protocol import Order, Reply, State
from desketch.session.server import Outcome, ServerSession
from desketch.session.short import ShortReply, is_short
from desketch.tasks import RunConfig, prepare
from desketch.tasks.parties import ConfiguredTrainer

# the noise is weak on purpose: these tests look at what is applied, not at what it is worth
pytestmark = pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")

COMMON = {"task": "digits", "model": "softmax", "clients": 3, "partition": "iid", "rounds": 3, "codec": "f16"}
PRIVATE = {
    "per-step": {
        "local_steps": 2,
        "dp": {"mechanism": "per-step", "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0},
    },
    "clients": {"dp": {"mechanism": "sketch-clip", "delta": 1e-2, "clip": 1.0, "noise_multiplier": 4.0}},
    "examples": {
        "local_steps": 1,
        "dp": {"mechanism": "sketch-clip", "unit": "example", "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0},
    },
}


def parties(name, folder=None, **dp):
    settings = {**COMMON, **PRIVATE[name]}
    if dp.get("noise_by") == "clients":
        settings["codec"] = "f32"
    settings["dp"] = {**settings["dp"], **dp}
    setup = prepare(RunConfig(**settings))
    session = ServerSession(
        setup.agreement(), setup.model.flatten(), folder=folder, privacy=setup.privacy(), sizes=setup.sizes
    )
    nodes = {100 + c: ClientSession(c, ConfiguredTrainer(setup, c), MemoryStore()) for c in range(3)}
    return session, nodes


def play(session, nodes):
    session.charge()
    for node, client in nodes.items():
        assert session.receive(node, client.answer(session.order(node))) is Outcome.DONE
    return session.close()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_round_is_charged_recorded_and_noisy(name, tmp_path):
    session, nodes = parties(name, tmp_path)
    first = play(session, nodes)
    assert first.participants == (0, 1, 2)
    assert not first.refused
    second = play(session, nodes)
    assert second.epsilon > first.epsilon > 0
    assert read_record(tmp_path / "privacy.json").ledger.histories()
    again, others = parties(name)
    assert play(again, others).digest != first.digest  # noise comes from the operating system, not from the seed
    assert torch.isfinite(session.w).all()


def test_what_was_spent_stays_spent_through_a_restart(tmp_path):
    session, nodes = parties("per-step", tmp_path)
    play(session, nodes)
    session.charge()  # killed after the charge: the round may have been released
    spent = session.privacy.ledger.epsilon()
    again, _ = parties("per-step", tmp_path)
    assert again.resumed
    assert again.privacy.ledger.epsilon() == spent


def test_the_budget_is_checked_before_the_release():
    session, nodes = parties("per-step", epsilon=1e-3)
    with pytest.raises(BudgetError):
        play(session, nodes)
    assert session.t == 0


NOISY_CLIENTS = [("per-step", {}), ("examples", {}), ("clients", {"noise_by": "clients"})]


@pytest.mark.parametrize(("name", "dp"), NOISY_CLIENTS)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_private_round_is_released_once_however_often_it_is_asked(name, dp, restarted, tmp_path):
    """A second order for the same round brings the same bytes; fresh noise twice would average out, charged once."""
    session, nodes = parties(name, **dp)
    trainer, store = nodes[100].trainer, FolderStore(tmp_path)
    client = ClientSession(0, trainer, store)
    order = session.order(100)
    first = client.answer(order)
    again = ClientSession(0, trainer, FolderStore(tmp_path)) if restarted else client
    assert read(first).state is State.TRAINED
    assert again.answer(order) == first
    # a server that lost the reply and restarted asks in other words: it does not know the client any more
    fresh, _ = parties(name, **dp)
    assert again.answer(fresh.order(500)) == first
    # the next round is another release
    assert session.receive(100, first) is Outcome.DONE
    session.close()
    second = again.answer(session.order(100))
    assert read(second).low == 2
    assert read(second).frame != read(first).frame
    assert again.answer(session.order(100)) == second


@pytest.mark.parametrize(("name", "dp"), NOISY_CLIENTS)
def test_the_reply_is_kept_before_it_leaves(name, dp):
    """Nothing is released that a restart would not repeat: a client that cannot keep its reply fails."""
    session, nodes = parties(name, **dp)

    class Full(MemoryStore):
        def save_ledger(self, ledger):
            raise RunError("disk full")

    reply = read(ClientSession(0, nodes[100].trainer, Full()).answer(session.order(100)))
    assert (reply.state, reply.frame) == (State.FAILED, None)


def read(data):
    """A reply of either form."""
    return ShortReply.unpack(data) if is_short(data) else Reply.unpack(data)


def state(data):
    return read(data).state


def changed(order, **changes):
    return replace(Order.unpack(order), **changes).pack()


def test_the_same_order_a_hundred_times_is_one_release(tmp_path):
    session, nodes = parties("per-step")
    client = ClientSession(0, nodes[100].trainer, FolderStore(tmp_path))
    order = session.order(100)
    replies = {client.answer(order) for _ in range(50)}
    again = ClientSession(0, nodes[100].trainer, FolderStore(tmp_path))
    replies |= {again.answer(order) for _ in range(50)}
    (reply,) = replies
    assert state(reply) is State.TRAINED
    assert read(reply).seconds == 0  # nor does the time it took say how many examples were sampled
    (counts,) = FolderStore(tmp_path).load_ledger().spent.spent.values()
    assert list(counts.values()) == [1]


@pytest.mark.parametrize(("name", "dp"), [*NOISY_CLIENTS, ("clients", {})])
def test_rounds_beyond_the_agreed_run_are_refused(name, dp):
    session, nodes = parties(name, **dp)
    order = session.order(100)
    for t in (999, 4):
        reply = read(nodes[100].answer(changed(order, t=t)))
        assert (reply.state, reply.frame) == (State.FAILED, None)
    assert state(nodes[100].answer(changed(order, t=3))) is State.TRAINED
    assert state(nodes[100].answer(order)) is State.FAILED  # the server went back


@pytest.mark.parametrize("restarted", [False, True])
def test_an_old_round_is_not_answered_again(restarted, tmp_path):
    session, nodes = parties("examples")
    client = ClientSession(0, nodes[100].trainer, FolderStore(tmp_path))
    orders = []
    for _ in range(2):
        orders.append(session.order(100))
        assert session.receive(100, client.answer(orders[-1])) is Outcome.DONE
        session.close()
    if restarted:
        client = ClientSession(0, nodes[100].trainer, FolderStore(tmp_path))
    reply = read(client.answer(orders[0]))
    assert (reply.state, reply.frame) == (State.FAILED, None)
    assert "second release" in reply.reason
    assert client.replica.version == 1  # nor does a replayed order move its replica
    assert state(client.answer(session.order(100))) is State.TRAINED


def test_other_weights_do_not_buy_a_second_release():
    session, nodes = parties("per-step")
    assert state(nodes[100].answer(session.order(100))) is State.TRAINED
    session._digest = None
    session.server.replica.w.add_(1.0)  # a server that lies about w, and sends it whole
    session.clients[100], session.server.versions[0] = 0, -1
    for _ in range(3):
        reply = read(nodes[100].answer(session.order(100)))
        assert (reply.state, reply.frame) == (State.FAILED, None)


def test_another_agreement_does_not_buy_a_second_release(tmp_path):
    """The server renames the run, weakens the noise, leaves privacy out; by its agreement alone or by the settings."""
    session, nodes = parties("per-step")
    client = ClientSession(0, nodes[100].trainer, FolderStore(tmp_path))
    assert state(client.answer(session.order(100))) is State.TRAINED
    renamed = replace(session.agreement, name="another")
    order = Order.unpack(session.order(200))
    lies = [
        changed(order.pack(), run=renamed.run, agreement=renamed.to_json()),
        changed(order.pack(), run=renamed.run, agreement=renamed.to_json(), t=2),
    ]
    for settings in ({"noise_multiplier": 0.01}, {"clip": 100.0}, {"epsilon": 50.0}):
        lies.append(parties("per-step", **settings)[0].order(200))
    for lie in lies:
        reply = read(client.answer(lie))
        assert (reply.state, reply.frame) == (State.FAILED, None)
    for dp in (PRIVATE["per-step"]["dp"] | {"noise_multiplier": 0.01}, None):  # Flower hands settings down from a run
        setup = prepare(RunConfig(**{**COMMON, "local_steps": 2, "dp": dp}))
        weak = ClientSession(0, ConfiguredTrainer(setup, 0), FolderStore(tmp_path))
        server = ServerSession(setup.agreement(), setup.model.flatten(), privacy=setup.privacy(), sizes=setup.sizes)
        reply = read(weak.answer(server.order(300)))
        assert (reply.state, reply.frame) == (State.FAILED, None)


def test_the_clients_own_budget_outlives_runs_and_restarts(tmp_path):
    """Limits of the operator: any run may ask, until what all of them got together reaches the limit."""
    one, nodes = parties("per-step")
    two, others = parties("per-step", noise_multiplier=1.5)
    (tmp_path / "limits.toml").write_text("releases = 3\n")
    got = []
    for session, trainer in [(one, nodes[100].trainer), (two, others[100].trainer)]:
        for _ in range(2):
            client = ClientSession(0, trainer, FolderStore(tmp_path))
            reply = client.answer(session.order(100))
            got.append(state(reply))
            if got[-1] is State.TRAINED:
                session.receive(100, reply)
                session.close()
    assert got == [State.TRAINED] * 3 + [State.FAILED]
    spent = FolderStore(tmp_path).load_ledger()
    (tmp_path / "limits.toml").write_text("epsilon = 1e-3\ndelta = 1e-5\n")
    assert state(ClientSession(0, others[100].trainer, FolderStore(tmp_path)).answer(two.order(100))) is State.FAILED
    (tmp_path / "limits.toml").write_text("epsilon = 9.0\ndelta = 1e-5\n")
    assert state(ClientSession(0, others[100].trainer, FolderStore(tmp_path)).answer(two.order(100))) is State.TRAINED
    assert FolderStore(tmp_path).load_ledger().serial == spent.serial + 1 == 4


def test_two_processes_of_one_client_give_one_answer(tmp_path):
    """A session that slept through another's answer gives that answer, not one of its own."""
    session, nodes = parties("per-step")
    awake, asleep = (ClientSession(0, nodes[100].trainer, FolderStore(tmp_path)) for _ in range(2))
    order = session.order(100)
    assert awake.answer(order) == asleep.answer(order)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "both gone"])
def test_a_damaged_ledger_releases_nothing(damage, tmp_path):
    session, nodes = parties("per-step")
    trainer = nodes[100].trainer
    for _ in range(2):
        session.receive(100, ClientSession(0, trainer, FolderStore(tmp_path)).answer(session.order(100)))
        session.close()
    path, copy = tmp_path / "ledger.json", tmp_path / "ledger.copy.json"
    whole = path.read_bytes()
    if damage.endswith("gone"):
        path.unlink()
    else:
        path.write_bytes(whole[:99] if damage == "cut" else whole.replace(b'"serial": 2', b'"serial": 1'))
    if damage == "both gone":
        copy.unlink()
    with pytest.raises(PrivacyError, match="newest copy"):
        ClientSession(0, trainer, FolderStore(tmp_path))
    path.write_bytes(whole)  # as advised
    copy.write_bytes(whole)
    assert state(ClientSession(0, trainer, FolderStore(tmp_path)).answer(session.order(100))) is State.TRAINED


def test_an_older_copy_is_outvoted_and_the_release_stays_one(tmp_path):
    session, nodes = parties("per-step")
    trainer = nodes[100].trainer
    session.receive(100, ClientSession(0, trainer, FolderStore(tmp_path)).answer(session.order(100)))
    session.close()
    old = (tmp_path / "ledger.json").read_bytes()
    order = session.order(100)
    second = ClientSession(0, trainer, FolderStore(tmp_path)).answer(order)
    (tmp_path / "ledger.json").write_bytes(old)
    assert ClientSession(0, trainer, FolderStore(tmp_path)).answer(order) == second


def test_a_mechanism_without_terms_is_refused():
    session, nodes = parties("per-step")

    class Careless:
        def __init__(self, trainer):
            self.start, self.channel, self.participant = trainer.start, trainer.channel, trainer.participant

    reply = read(ClientSession(0, Careless(nodes[100].trainer), MemoryStore()).answer(session.order(100)))
    assert (reply.state, reply.frame) == (State.FAILED, None)


def test_a_client_meets_a_server_with_another_configuration():
    """On first contact too: the client's own configuration decides what it takes part in."""
    _, nodes = parties("per-step")
    other, _ = parties("per-step", noise_multiplier=3.0)
    reply = read(nodes[100].answer(other.order(100)))
    assert (reply.state, reply.frame) == (State.FAILED, None)
    assert "configuration" in reply.reason
