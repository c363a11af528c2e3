"""The ledger of a run: what it reports is never less than what was spent, and a restart changes neither."""

from __future__ import annotations

import pytest

from desketch.privacy.events import Gaussian
from desketch.privacy.noise import SeededNoiseNotPrivate
from desketch.privacy.run import RunLedger

CLAIM = {"adjacency": "add-remove"}


def _ledger(**options: str) -> RunLedger:
    return RunLedger(lambda t: {"everybody": Gaussian(20.0)}, claim=CLAIM, unit="client", delta=1e-5, **options)


@pytest.mark.parametrize("rounds", [1, 16, 17, 35])
def test_the_reported_epsilon_is_an_upper_bound_within_a_few_percent(rounds: int) -> None:
    ledger = _ledger()
    for t in range(1, rounds + 1):
        ledger.charge(t)
    reported, spent = ledger.epsilon(), ledger.spent()
    assert reported is not None
    assert spent * (1 - 1e-9) <= reported <= 1.1 * spent


def test_a_run_once_marked_not_private_stays_so() -> None:
    marked = _ledger(not_private=SeededNoiseNotPrivate.not_private)
    marked.charge(1)
    later = _ledger()
    later.load_state_dict(marked.state_dict())
    assert later.epsilon() is None
    assert later.record.ledger.not_private


def test_what_was_spent_stays_spent() -> None:
    first, second = _ledger(), _ledger()
    for t in (1, 2, 3):
        first.charge(t)
    second.load_state_dict(first.state_dict())
    second.charge(4)
    (history,) = second.record.ledger.histories()
    assert history == ((Gaussian(20.0), 4),)


def test_everybody_who_releases_is_charged_with_its_own_event() -> None:
    releases = {"0": Gaussian(20.0), "1": Gaussian(30.0), "2": Gaussian(20.0)}
    ledger = RunLedger(lambda t: releases if t == 1 else {"2": Gaussian(20.0)}, claim=CLAIM, unit="example", delta=1e-5)
    ledger.charge(1)
    ledger.charge(2)
    spent = {party: dict(counts) for party, counts in ledger.record.ledger.spent.items()}
    assert spent == {"0": {Gaussian(20.0): 1}, "1": {Gaussian(30.0): 1}, "2": {Gaussian(20.0): 2}}
