"""The same over MQTT: client, broker and server, each a process of its own, killed in mid-round and started again."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from deployed import Deployed

from desketch.errors import RunError
from desketch.integrations.mqtt.broker import mosquitto
from desketch.integrations.mqtt.deploy import MqttPlan, start_broker, start_client, start_server
from desketch.integrations.processes import Processes, free_port

sys.path[:0] = [str(Path(__file__).parents[1] / "integrations" / "mqtt")]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


class MqttBed(Deployed):
    """A secure deployment over MQTT under test."""

    def __init__(self, folder, clients, rounds, round_timeout, **settings):
        super().__init__(folder, clients, rounds, **settings)
        self.plan = MqttPlan(
            folder=folder, config=self.config, port=free_port(), secure=True, round_timeout=round_timeout
        )
        self.plan.write()
        self.detours = {}  # client -> another port by which it reaches the broker
        self.deployment = Processes(folder)

    def start(self):
        self.start_broker()
        for client in range(self.clients):
            self.start_client(client)
        self.start_server()

    def start_broker(self):
        start_broker(self.deployment, self.plan)

    def start_client(self, client):
        start_client(self.deployment, replace(self.plan, port=self.detours.get(client, self.plan.port)), client)

    def start_server(self):
        start_server(self.deployment, self.plan)

    def kill(self, name):
        self.deployment.stop(name, signal.SIGKILL)

    def answers(self, client):
        path = self.folder / f"client-{client}" / "joined.json"
        return json.loads(path.read_text())["answers"] if path.exists() else 0

    def hold_in_mid_round(self, client):
        """Stop the client where it is, and wait until the others have answered a later round, which is then open."""
        os.kill(self.deployment.processes[f"client {client}"].pid, signal.SIGSTOP)
        other, done = 1 - client, len(self.rows())
        self.until(lambda: self.answers(other) > done + 1 or self._stuck(other, done), "a round that waits for it")

    def _stuck(self, other, done):
        return len(self.rows()) == done and self.answers(other) > done


@pytest.fixture
def bed(tmp_path):
    try:
        mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")
    made = []

    def make(*, clients=2, rounds=4, round_timeout=300.0, through=None, cut=(), **settings):
        made.append(MqttBed(tmp_path, clients, rounds, round_timeout, **settings))
        if through is not None:
            made[-1].detours = dict.fromkeys(cut, through(made[-1].plan.port))
        made[-1].start()
        made[-1].until_round(1)
        return made[-1]

    yield make
    for one in made:
        one.deployment.__exit__()


def test_a_client_killed_in_mid_round_takes_part_in_it(bed):
    run = bed()
    run.hold_in_mid_round(0)
    run.kill("client 0")
    run.start_client(0)
    assert run.finish() == [(0, 1)] * 4


def test_a_broker_killed_in_mid_round(bed):
    run = bed()
    run.hold_in_mid_round(0)
    run.kill("broker")
    os.kill(run.deployment.processes["client 0"].pid, signal.SIGCONT)
    run.start_broker()
    assert run.finish() == [(0, 1)] * 4


def test_a_server_killed_in_mid_round_goes_on_from_the_last_whole_round(bed):
    run = bed()
    run.hold_in_mid_round(0)
    run.kill("server")
    os.kill(run.deployment.processes["client 0"].pid, signal.SIGCONT)
    run.start_server()
    assert run.finish() == [(0, 1)] * 4


def test_everything_is_killed_at_once(bed):
    run = bed()
    run.hold_in_mid_round(0)
    for name in ("server", "client 0", "client 1", "broker"):
        run.kill(name)
    run.start()
    assert run.finish() == [(0, 1)] * 4


def test_rounds_go_on_without_a_client_and_with_it_when_it_is_back(bed):
    run = bed(rounds=40, round_timeout=10.0)
    run.kill("client 1")
    run.until(lambda: any(row["clients"] == [0] for row in run.rows()), "a round without it")
    run.deployment.signal("server", signal.SIGSTOP)  # rounds are quick: none until it is back
    run.start_client(1)
    back = "as 1 (p5"
    run.until(lambda: run.deployment.log("broker").read_text().count(back) == 2, "the client that is back")
    run.deployment.signal("server", signal.SIGCONT)
    participants = run.finish()
    assert (0,) in participants
    assert participants[-1] == (0, 1)


@pytest.mark.parametrize(("round_timeout", "cut"), [(300.0, (0, 1)), (10.0, (0,))], ids=["all", "one"])
def test_the_network_is_cut_for_half_a_minute(bed, round_timeout, cut):
    from fault_proxy import FaultProxy

    proxies = []

    def through(port):
        proxies.append(FaultProxy(port, packets=False).__enter__())
        return proxies[0].port

    try:
        # without running means: an update whose reply is late is in its client's mean, and in no recorded round
        run = bed(rounds=12, round_timeout=round_timeout, through=through, cut=cut, client_momentum=0.0)
        run.hold_in_mid_round(0)
        proxies[0].silence()
        os.kill(run.deployment.processes["client 0"].pid, signal.SIGCONT)  # its reply finds no way
        end = time.monotonic() + 30
        run.until(lambda: time.monotonic() > end, "the end of the cut")
        proxies[0].speak()
        participants = run.finish()
    finally:
        for proxy in proxies:
            proxy.__exit__()
    if cut == (0, 1):  # the round waited for them
        assert participants == [(0, 1)] * 12
    else:
        assert all(1 in clients for clients in participants)
        assert (1,) in participants
        assert participants[-1] == (0, 1)
