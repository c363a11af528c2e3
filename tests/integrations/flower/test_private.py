"""Privacy over the protocol: the mechanisms of the in-process engine, charged and recorded before a release."""

from __future__ import annotations

import pytest
import torch

from desketch.errors import BudgetError
from desketch.integrations.flower.party import ConfiguredTrainer
from desketch.privacy.record import read_record
from desketch.session.client import ClientSession, MemoryStore
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
