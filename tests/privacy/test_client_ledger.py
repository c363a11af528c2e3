"""A client's own ledger, against any sequence of questions: what leaves is charged, and a question has one answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desketch.errors import BudgetError, DesketchError, InputError, PrivacyError
from desketch.privacy.accountants import epsilon
from desketch.privacy.calibrate import Budget
from desketch.privacy.client_ledger import ClientLedger, Limits, Terms
from desketch.privacy.events import Gaussian, Ledger

COST = Gaussian(20.0)
DELTA = 1e-5
RUN = Terms(run="a", rounds=5, unit="example", cost=COST)


def price(count):
    return epsilon(Ledger("example").plus(COST, count=count), DELTA)


class Client:
    """Answers like a session: whatever it can repeat, it repeats; what it may release, it releases once."""

    def __init__(self, limits=None):
        self.ledger, self.released = ClientLedger(limits), []

    def ask(self, terms, t, question):
        try:
            given = self.ledger.repeated(terms, t, question)
            if given is None:
                reply = f"{len(self.released)}".encode()
                self.ledger = self.ledger.after(terms, t, question, reply)
                self.released.append((terms, t, question))
                given = reply
        except DesketchError:
            return None
        return given

    def restart(self):
        text = json.dumps(self.ledger.to_dict())
        self.ledger = ClientLedger.from_dict(json.loads(text), self.ledger.limits)


questions = st.tuples(
    st.sampled_from([RUN, replace(RUN, run="b"), replace(RUN, rounds=99), replace(RUN, cost=Gaussian(0.1))]),
    st.integers(-1, 8),
    st.sampled_from(["w", "v"]),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(asked=st.lists(questions, max_size=40), limited=st.booleans())
def test_no_sequence_of_questions_gets_more_than_was_agreed(asked, limited):
    limits = Limits(releases=4) if limited else None
    client, answers = Client(limits), {}
    for terms, t, question, restart in asked:
        reply = client.ask(terms, t, question)
        if reply is not None:
            assert answers.setdefault((terms.name, t, question), reply) == reply  # one question, one answer
        if restart:
            client.restart()
    rounds = [(terms.name, t) for terms, t, _ in client.released]
    assert len(set(rounds)) == len(rounds)  # no round of a run is released twice, at whatever weights
    assert all(1 <= t <= terms.rounds for terms, t, _ in client.released)
    assert len({name for name, _ in rounds}) <= 1 or limited  # one agreement, unless the operator says otherwise
    assert not limited or len(rounds) <= 4
    charged = sum(n for counts in (client.ledger.spent.spent if rounds else {}).values() for n in counts.values())
    assert charged == len(rounds) == client.ledger.serial


def test_the_budget_of_a_run_ends_its_answers():
    terms = replace(RUN, budget=Budget(price(3) * 1.001, DELTA))
    client = Client()
    assert [client.ask(terms, t, "w") is not None for t in range(1, 6)] == [True] * 3 + [False] * 2
    with pytest.raises(BudgetError, match="nothing was released"):
        client.ledger.admit(terms, 4)


def test_a_limit_holds_over_all_runs_together():
    client = Client(Limits(epsilon=price(3) * 1.001, delta=DELTA))
    got = [client.ask(replace(RUN, run=name), 1, "w") is not None for name in "abcdef"]
    assert got == [True] * 3 + [False] * 3


def test_rounds_nobody_asked_for_cost_too_at_the_client_level():
    terms = Terms(run="a", rounds=9, cost=COST, unasked=True)
    client = Client()
    for t in (2, 7):
        assert client.ask(terms, t, "w")
    (counts,) = client.ledger.spent.spent.values()
    assert dict(counts) == {COST: 7}


def test_what_cannot_be_priced_is_counted_and_no_epsilon_is_promised():
    plain = Terms(run="a", rounds=3)
    assert Client(Limits(releases=1)).ask(plain, 1, "w")
    with pytest.raises(PrivacyError, match="limit releases"):
        ClientLedger(Limits(epsilon=1.0, delta=DELTA)).admit(plain, 1)


def test_units_are_not_mixed():
    client = Client(Limits(releases=9))
    assert client.ask(RUN, 1, "w")
    assert client.ask(Terms(run="b", rounds=5, unit="client", cost=COST), 1, "w") is None


@pytest.mark.parametrize("bad", [{"epsilon": 1.0}, {"delta": 0.1}, {"releases": -1}, {"epsilon": -1.0, "delta": 0.1}])
def test_limits_are_complete_and_sensible(bad):
    with pytest.raises(InputError):
        Limits(**bad)


def test_a_ledger_of_another_kind_is_refused():
    for data in ({}, {"version": 2}, ClientLedger().to_dict() | {"rounds": 3}):
        with pytest.raises(PrivacyError):
            ClientLedger.from_dict(data)
