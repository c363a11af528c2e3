"""A browser tab as the third client of ``desketch deploy --engine mqtt --try 2 --web``."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

pytest.importorskip("paho.mqtt")

from desketch.integrations.mqtt.broker import Tab
from desketch.integrations.mqtt.carrier import MqttCarrier
from desketch.integrations.mqtt.deploy import MqttPlan, start_broker
from desketch.integrations.mqtt.web import page_server
from desketch.integrations.processes import Processes, free_port
from desketch.session.protocol import Order, Reply, half
from desketch.tasks import RunConfig, prepare

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


def wait(condition, seconds=120.0):
    """Wait until the condition holds, and return what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def rows(folder):
    path = folder / "server" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.fixture
def run(mosquitto, tmp_path):
    """The command as a user starts it, and the address it prints."""
    command = [sys.executable, "-m", "desketch", "deploy", tmp_path / "run", "--engine", "mqtt", "--try", "2", "--web"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    yield process, wait(lambda: re.search(r"http://\S+#\S+", (tmp_path / "said").read_text()))[0], tmp_path / "run"
    process.terminate()
    process.wait(timeout=60)


def state(browser, name):
    return browser.evaluate(f"globalThis.desketch ? desketch.{name} : null")


@pytest.mark.slow
def test_a_tab_trains_with_two_processes_leaves_comes_back_and_holds_the_servers_bits(browser, run):
    process, url, folder = run
    browser.call("Emulation.setDeviceMetricsOverride", **PHONE)
    page, _, key = url.partition("#")

    browser.open(f"{page}#{key[::-1]}")
    wait(lambda: state(browser, "phase") == "stopped")
    assert "This link's key is not that of the run" in browser.evaluate("document.body.innerText")
    assert rows(folder) == []

    browser.open("about:blank")
    browser.open(url)
    wait(lambda: state(browser, "round") >= 10)
    before = json.loads(browser.evaluate("JSON.stringify(desketch.digests)"))
    browser.open("about:blank")  # the tab is closed
    wait(lambda: sum(row["participants"] == 2 for row in rows(folder)) >= 5)
    browser.open(url)
    wait(lambda: state(browser, "phase") in ("done", "stopped"))
    assert state(browser, "message") == ""
    after = json.loads(browser.evaluate("JSON.stringify(desketch.digests)"))
    assert process.wait(timeout=60) == 0

    told = {str(row["round"]): row["digest"] for row in rows(folder)}
    mine = {version: digest for version, digest in {**before, **after}.items() if version != "0"}
    assert mine == {version: told[version] for version in mine}
    versions = sorted(map(int, after))
    assert versions == list(range(versions[0], 201))  # every round since it came back, the last too
    present = {row["round"] for row in rows(folder) if row["participants"] == 3}
    assert present >= set(range(1, 11)) | set(range(versions[0] + 1, 201))
    assert rows(folder)[-1]["accuracy"] > 0.9
    assert all(row["refused"] == {} for row in rows(folder))

    assert "your replica equals the server's" in browser.evaluate("document.getElementById('verdict').textContent")
    assert told["200"][:32] in browser.evaluate("document.getElementById('digest').textContent")
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert [seen for seen in browser.requests() if not seen.startswith((page, "data:"))] == []
    assert browser.complaints() == []
    trained = [point["round"] for point in json.loads(browser.evaluate("JSON.stringify(desketch.losses)"))]
    assert trained[:10] == list(range(1, 11))  # of before it was closed
    assert trained[-1] == 200
    assert len(trained) == state(browser, "updates") == len(present)
    shown = browser.evaluate("document.getElementById('absences').textContent")
    assert "closed or reloaded once" in shown
    (gap,) = [(a + 1, b - 1) for a, b in itertools.pairwise(trained) if b > a + 1]
    assert f"rounds {gap[0]} to {gap[1]}." in shown
    assert browser.evaluate("localStorage.length") == 0  # the run is over
    sent, received = state(browser, "sent"), state(browser, "received")
    assert sent + received < 0.05 * 8 * state(browser, "d") * state(browser, "updates")


@pytest.fixture
def alone(mosquitto, tmp_path):
    """A broker, the page of client 0, and a server's carrier: nobody else."""
    config = RunConfig(task="digits", model="softmax", clients=1, rounds=5)
    plan = MqttPlan(folder=tmp_path, config=config, port=free_port(), tab=Tab(0))
    plan.write()
    with Processes(tmp_path) as processes:
        start_broker(processes, plan)
        with page_server(config, plan.tab) as page, MqttCarrier(plan.address, clients=1) as carrier:
            yield config, page, carrier


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda order: b"\xde" + bytes(40), "version: got 0, this side reads 2"),
        (lambda order: replace(order, checkpoint=order.checkpoint[:-8]).pack(), "w is no whole vector of float32"),
        (lambda order: replace(order, d=order.d + 1).pack(), "d: the agreement is of another run than the order"),
    ],
    ids=["garbage", "checkpoint", "d"],
)
def test_a_page_says_what_is_wrong_and_leaves(browser, alone, spoil, words):
    config, page, carrier = alone
    setup = prepare(config)
    agreement = setup.agreement()
    replica = agreement.replica(setup.model.flatten(), agreement.channel())
    facts = {"run": agreement.run, "d": agreement.d, "t": 1, "since": 0, "upto": 0, "digest": half(replica.digest())}
    order = Order(**facts, agreement=agreement.to_json(), checkpoint=replica.checkpoint())

    browser.open("about:blank")
    browser.open(page.url)
    wait(lambda: carrier.arrivals(0.1) or carrier.nodes() == [0])
    carrier.send(0, spoil(order), carrier.now() + 30)
    came = []
    wait(lambda: came.extend(carrier.arrivals(0.1)) or carrier.nodes() == [])
    assert [Reply.unpack(arrival.data).frame for arrival in came] in ([], [None])
    wait(lambda: state(browser, "phase") == "stopped")
    shown = browser.evaluate("document.body.innerText")
    assert words in shown
    assert "This tab has stopped" in shown
    assert "no round yet" not in shown  # nor anything else that never came
