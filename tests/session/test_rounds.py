"""Whole runs over a carrier that loses, repeats, delays, reorders and cuts: the weights of an undisturbed run."""

from __future__ import annotations

import functools

import parties
import pytest
from memory_carrier import Faults, MemoryCarrier

from desketch.fed.rounds import Observer
from desketch.session.carrier import Arrival
from desketch.session.rounds import Rounds


def four():
    return {100 + c: parties.returning(c) for c in range(parties.CLIENTS)}


def drive(carrier, rounds=5, session=None, **options):
    session = session or parties.server()
    rows = []
    settings = {"clients": 4, "wait_for": 4, "seconds": 60.0, "on_row": rows.append, **options}
    Rounds(session=session, carrier=carrier, **settings).run(rounds)
    return session, rows


@functools.cache
def undisturbed(rounds=5):
    return drive(MemoryCarrier(four()), rounds)[0].digest()


def test_rounds_over_a_carrier_are_those_of_plain_calls():
    session, nodes = parties.server(), four()
    for _ in range(5):
        parties.play(session, nodes)
    assert undisturbed() == session.digest()


FAULTS = {
    "lost": Faults(lost=0.3),
    "twice": Faults(twice=0.5),
    "delayed": Faults(delayed=0.7),
    "all": Faults(lost=0.1, twice=0.2, delayed=0.4),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_carrier_costs_time_and_nothing_else(name):
    """Orders without an answer are repeated; nothing counts twice, so the weights are those of an undisturbed run."""
    carrier = MemoryCarrier(four(), FAULTS[name])
    session, rows = drive(carrier, seconds=600.0, repeat_after=5.0)
    assert [row["participants"] for row in rows] == [4] * 5
    assert session.digest() == undisturbed()
    assert {party.replica.digest() for party in carrier.parties.values()} == {session.digest()}


@pytest.mark.parametrize("faults", [Faults(cut=0.2), Faults(flipped=0.2)], ids=["cut", "flipped"])
def test_damaged_messages_are_refused_and_replicas_stay_equal(faults):
    carrier = MemoryCarrier(four(), faults)
    session, rows = drive(carrier, seconds=600.0, repeat_after=5.0)
    assert all(row["participants"] + len(row["refused"]) == 4 for row in rows)
    assert 15 < sum(row["participants"] for row in rows) < 20  # most damage is asked for again, in full
    carrier.faults = Faults()
    Rounds(session=session, carrier=carrier, clients=4)._last_broadcast()
    assert {party.replica.digest() for party in carrier.parties.values()} == {session.digest()}


def test_a_round_goes_on_without_the_silent_and_they_come_back():
    nodes = four()
    away = nodes[103]
    carrier = MemoryCarrier({**nodes, 103: None}, hooks=[(100.0, lambda c: c.parties.update({103: away}))])
    session, rows = drive(carrier, rounds=4)
    assert [row["participants"] for row in rows] == [3, 3, 4, 4]
    assert [row["dropped"] for row in rows] == [1, 1, 0, 0]
    assert away.replica.digest() == session.digest()


def test_a_newcomer_of_an_open_round_takes_part_and_its_dead_node_is_waited_for_no_more():
    nodes = four()
    back = parties.returning(1)

    def returns(carrier):
        carrier.parties[201] = back

    carrier = MemoryCarrier({**nodes, 101: None}, hooks=[(5.0, returns)])
    carrier.parties[102] = None  # somebody must keep the round open
    session, rows = drive(carrier, rounds=2)
    assert [row["clients"] for row in rows] == [[0, 1, 3]] * 2
    assert session.clients[201] == 1


def test_nodes_that_stay_away_are_waited_for_once():
    carrier = MemoryCarrier({100: parties.returning(0)})
    drive(carrier, rounds=3, seconds=50.0)
    assert 50.0 <= carrier.clock < 51.0


def test_a_node_whose_carrier_gives_it_up_is_named():
    class Broken(MemoryCarrier):
        def send(self, node, data, deadline):
            if node == 102:
                self._ready.append(Arrival(node=node, error="no route", again=True))
            else:
                super().send(node, data, deadline)

    _, rows = drive(Broken(four()), rounds=1)
    assert rows[0]["refused"] == {"node 102": "no route"}
    assert rows[0]["participants"] == 3


def test_a_server_restarted_in_the_middle_of_a_round_ends_where_an_undisturbed_one_does(tmp_path):
    carrier = MemoryCarrier(four())

    class KilledError(Exception):
        pass

    class Kill(Observer):
        def on_frames(self, t, w, frames):
            if t == 3:
                raise KilledError

    with pytest.raises(KilledError):
        drive(carrier, session=parties.server(tmp_path), observer=Kill())
    again = parties.server(tmp_path)
    assert again.t == 2
    session, rows = drive(carrier, session=again)
    assert [row["round"] for row in rows] == [3, 4, 5]
    assert session.digest() == undisturbed()


def test_clients_restarted_in_the_middle_of_a_round_end_where_undisturbed_ones_do(tmp_path):
    carrier = MemoryCarrier(four(), Faults(delayed=1.0))
    store = carrier.parties[102].store

    def restart(carrier):
        carrier.parties[102] = parties.client(2, store)  # with its folder
        carrier.parties[101] = parties.returning(1)  # without

    carrier._at(4.0, lambda: restart(carrier))
    session, _ = drive(carrier, repeat_after=5.0, seconds=600.0)
    assert session.digest() == undisturbed()
