"""The JavaScript client at a real broker: who gets in, what it answers, what ends it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt")

from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.broker import Tab, write_broker
from desketch.integrations.mqtt.carrier import MqttCarrier
from desketch.integrations.processes import Processes, free_port

PARTY = Path(__file__).parents[2] / "clients" / "js" / "test" / "broker.mjs"
CLIENT = 2
LONG = bytes(range(256)) * 1000  # many WebSocket frames


@pytest.fixture
def bed(mosquitto, tmp_path):
    """A broker with a listener for one tab; the tab and the address for everybody else."""
    tab, port = Tab(CLIENT), free_port()
    configuration = write_broker(tmp_path / "broker", clients=3, port=port, keys=None, tab=tab)
    with Processes(tmp_path) as processes:
        processes.start("broker", [mosquitto, "-c", str(configuration)])
        processes.wait_for_port("broker", "127.0.0.1", port)
        yield tab, Address(host="127.0.0.1", port=port, tls=False)


class Party:
    def __init__(self, node, tab, **changes):
        broker = {"url": f"ws://127.0.0.1:{tab.port}/", "name": "tab", "user": str(CLIENT), "password": tab.key}
        settings = json.dumps({**broker, "root": "d", "client": CLIENT, **changes})
        command = [node, "--experimental-websocket", "--no-warnings", PARTY, settings]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def said(self):
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def wait_for(carrier, nodes):
    end = carrier.now() + 20
    while carrier.nodes() != nodes and carrier.now() < end:
        carrier.arrivals(0.2)
    assert carrier.nodes() == nodes


def ask(carrier, order):
    carrier.send(CLIENT, order, carrier.now() + 20)
    end = carrier.now() + 20
    while carrier.now() < end:
        for came in carrier.arrivals(0.2):
            return came.node, came.data
    return None


def test_a_party_answers_until_the_run_is_over(bed, node):
    tab, address = bed
    carrier = MqttCarrier(address, clients=3)
    carrier.open()
    with Party(node, tab) as party:
        wait_for(carrier, [CLIENT])
        assert party.said() == {"what": "connected"}
        for order in (b"a", LONG, LONG, b"b"):
            assert ask(carrier, order) == (CLIENT, order)
            assert party.said() == {"what": "answered"}
        carrier.close(over=True)
        last = party.said()
    assert last["what"] == "over"
    assert 2 * len(LONG) < last["sent"] < 2 * len(LONG) + 300


def test_a_party_that_is_killed_is_an_absence_and_comes_back(bed, node):
    tab, address = bed
    with MqttCarrier(address, clients=3) as carrier:
        with Party(node, tab):
            wait_for(carrier, [CLIENT])
        wait_for(carrier, [])
        with Party(node, tab):
            wait_for(carrier, [CLIENT])
            assert ask(carrier, b"again") == (CLIENT, b"again")


def test_a_wrong_key_is_refused_for_good(bed, node):
    tab, address = bed
    with MqttCarrier(address, clients=3) as carrier:
        for changes in ({"password": tab.key[:-1]}, {"user": "1"}, {"user": "server"}):
            with Party(node, tab, **changes) as party:
                said = party.said()
                assert (said["what"], said["name"]) == ("stopped", "MqttEnd")
                assert "does not let this client in" in said["message"]
        assert carrier.nodes() == []


def test_the_key_opens_no_topics_of_others(bed, node):
    tab, address = bed
    with MqttCarrier(address, clients=3) as carrier, Party(node, tab, client=1, name="thief") as thief:
        assert thief.said() == {"what": "connected"}  # and says that client 1 is there
        with Party(node, tab):
            wait_for(carrier, [CLIENT])


def test_an_order_that_is_older_than_the_newest_is_dropped(bed, node):
    tab, address = bed
    with MqttCarrier(address, clients=3) as carrier, Party(node, tab):
        wait_for(carrier, [CLIENT])
        sent = [
            (b"ab", 65535, b"x"),
            (b"ab", 65534, b"old"),
            (b"ab", 65535, b"twice"),
            (b"ab", 1, b"y"),
            (b"cd", 0, b"z"),
        ]
        for process, serial, order in sent:  # serials begin anew after 65535, and with another process of the server
            carrier.link.publish(f"d/{CLIENT}/o", process + serial.to_bytes(2, "little") + order)
        came, end = [], carrier.now() + 20
        while len(came) < 3 and carrier.now() < end:
            came += [arrival.data for arrival in carrier.arrivals(0.2)]
        assert came == [b"x", b"y", b"z"]


def test_garbage_ends_the_party_and_nothing_is_sent(bed, node):
    tab, address = bed
    with MqttCarrier(address, clients=3) as carrier, Party(node, tab) as party:
        wait_for(carrier, [CLIENT])
        party.said()
        carrier.send(CLIENT, b"\xde\xad", carrier.now() + 5)
        carrier.arrivals(0.1)
        assert party.said() == {"what": "stopped", "name": "Refused", "message": "magic: no order at all"}
        wait_for(carrier, [])
