"""Every carrier carries: what is sent arrives whole where it was sent to, or does not arrive; nothing hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from carriers import ABSENT, BEDS, NODES, SILENT, ask, collect, echo

from desketch.errors import InputError, RunError

sys.path[:0] = [str(Path(__file__).parents[1] / "integrations" / engine) for engine in ("flower", "mqtt")]


@pytest.fixture(scope="module", params=list(BEDS))
def carrier(request, tmp_path_factory):
    if request.param.startswith("mqtt"):
        from desketch.integrations.mqtt import broker

        try:
            broker.mosquitto()
        except RunError as error:
            pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")
    elif request.param == "flower":
        pytest.importorskip("flwr", reason="the extra flower is not installed")
    with BEDS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made


def test_who_is_there_is_listed_once(carrier):
    assert sorted(carrier.nodes()) == [*NODES, SILENT]


@pytest.mark.parametrize("size", [1, 4, 257, 70_000, 6_000_000])
def test_bytes_of_any_length_and_value_arrive_whole(carrier, size):
    order = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    came = ask(carrier, {1: order[:-1] + b"\xde"})
    assert came[1].error is None
    assert came[1].data == echo(1, order[:-1] + b"\xde")


@pytest.mark.parametrize("size", [10, 300_000])
def test_many_at_once_reach_each_its_own(carrier, size):
    for turn in range(5):
        orders = {node: bytes([0x61, turn, node]) * size for node in NODES}
        came = ask(carrier, orders)
        assert {node: came[node].data for node in NODES} == {node: echo(node, orders[node]) for node in NODES}


def test_one_order_for_everybody_is_answered_by_each(carrier):
    for turn in range(20):
        carrier.send(SILENT, order := bytes([0x60, turn]), carrier.now() + 60)
        came = ask(carrier, dict.fromkeys(NODES, order))
        assert {node: came[node].data for node in NODES} == {node: echo(node, order) for node in NODES}


def test_the_same_order_again_is_answered_again(carrier):
    for _ in range(3):
        assert ask(carrier, {2: b"again"})[2].data == echo(2, b"again")


def test_of_two_orders_to_a_node_the_newer_is_answered(carrier):
    carrier.send(0, b"older", carrier.now() + 60)
    carrier.send(0, b"newer", carrier.now() + 60)
    heard = []
    while echo(0, b"newer") not in heard:
        heard += [arrival.data for arrival in collect(carrier, [0])]
    assert set(heard) <= {echo(0, b"older"), echo(0, b"newer")}


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_waiting_for_nothing_ends(carrier, timeout):
    before = carrier.now()
    assert carrier.arrivals(timeout) == []
    assert before <= carrier.now() < before + 30


def test_a_silent_node_holds_nobody_up(carrier):
    carrier.send(SILENT, b"hello", carrier.now() + 60)
    came = ask(carrier, {0: b"still here"})
    assert came[0].data == echo(0, b"still here")
    assert SILENT not in came


def test_an_order_to_a_node_that_is_not_there_is_lost_or_reported(carrier):
    carrier.send(ABSENT, b"anybody?", carrier.now() + 60)
    carrier.send(1, b"you", carrier.now() + 60)
    came = collect(carrier, [1])
    assert [arrival.data for arrival in came if arrival.node == 1] == [echo(1, b"you")]
    assert all(arrival.error and not arrival.data for arrival in came if arrival.node == ABSENT)
    assert ABSENT not in carrier.nodes()


def test_a_deadline_that_has_passed_harms_nothing(carrier):
    carrier.send(3, b"too late", carrier.now() - 10)
    seen = carrier.arrivals(0.2)
    assert all(arrival.error or arrival.data == echo(3, b"too late") for arrival in seen)
    carrier.send(3, b"in time", carrier.now() + 60)
    heard = []
    while echo(3, b"in time") not in heard:
        heard += [arrival.data for arrival in collect(carrier, [3])]


def test_an_empty_order_is_refused_or_carried_and_ends_nothing(carrier):
    try:
        carrier.send(2, b"", carrier.now() + 60)
    except InputError:
        pass
    else:
        assert all(arrival.error or arrival.data == echo(2, b"") for arrival in collect(carrier, [2]))
    assert ask(carrier, {2: b"and now"})[2].data == echo(2, b"and now")
