"""Privacy over the protocol: the mechanisms of the in-process engine, charged and recorded before a release."""

from __future__ import annotations

import pytest
import torch

from desketch.errors import BudgetError, RunError
from desketch.integrations.flower.party import ConfiguredTrainer
from desketch.privacy.record import read_record
from desketch.session.client import ClientSession, FolderStore, MemoryStore
from desketch.session.protocol import Reply, State
from desketch.session.server import Outcome, ServerSession
from desketch.tasks import RunConfig, prepare

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
    session = ServerSession(setup.agreement(), setup.model.flatten(), folder=folder, privacy=setup.privacy())
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
    assert Reply.unpack(first).state is State.TRAINED
    assert again.answer(order) == first
    # a server that lost the reply and restarted asks in other words: it does not know the client any more
    fresh, _ = parties(name, **dp)
    assert again.answer(fresh.order(500)) == first
    # the next round is another release
    assert session.receive(100, first) is Outcome.DONE
    session.close()
    second = again.answer(session.order(100))
    assert Reply.unpack(second).t == 2
    assert Reply.unpack(second).frame != Reply.unpack(first).frame
    assert again.answer(session.order(100)) == second


@pytest.mark.parametrize(("name", "dp"), NOISY_CLIENTS)
def test_the_reply_is_kept_before_it_leaves(name, dp):
    """Nothing is released that a restart would not repeat: a client that cannot keep its reply fails."""
    session, nodes = parties(name, **dp)

    class Full(MemoryStore):
        def save(self, kept):
            raise RunError("disk full")

    reply = Reply.unpack(ClientSession(0, nodes[100].trainer, Full()).answer(session.order(100)))
    assert (reply.state, reply.frame) == (State.FAILED, None)


def test_other_weights_are_another_question():
    session, nodes = parties("per-step")
    first = nodes[100].answer(session.order(100))
    session.server.replica.w.add_(1.0)  # a server that went another way
    stale = Reply.unpack(nodes[100].answer(session.order(100)))
    assert stale.state is State.STALE
    session.server.versions[0] = stale.version
    session.clients[100] = 0
    healed = nodes[100].answer(session.order(100))
    assert Reply.unpack(healed).state is State.TRAINED
    assert Reply.unpack(healed).frame != Reply.unpack(first).frame
