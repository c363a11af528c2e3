"""``deploy --engine mqtt``, ``join`` and ``serve``: what is written, and what is said when it cannot be."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from desketch.cli.app import main
from desketch.core.rows import write_rows
from desketch.fed.rounds import RoundRecord
from desketch.integrations.mqtt import broker
from desketch.integrations.mqtt.deploy import MqttPlan
from desketch.integrations.processes import free_port
from desketch.tasks.config import RunConfig


def said(capsys, monkeypatch, *arguments):
    """Exit code and everything said by ``desketch ARGUMENTS``."""
    monkeypatch.setattr(sys, "argv", ["desketch", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as exit:
        code = exit.code
    out = capsys.readouterr()
    return code, " ".join((out.out + out.err).split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["join", "mqtt://10.0.0.1:1883", "--client", "0"], "in the clear"),
        (["join", "tcp://127.0.0.1", "--client", "0"], "expected mqtts://host:port"),
        (["join", "mqtt://127.0.0.1"], "which client is this?"),
        (["join", "mqtts://h", "--client", "0"], "asks for credentials"),
        (["join", "mqtt://127.0.0.1", "--client", "40"], "client 40 of a run with 20"),
        (["serve", "mqtts://h"], "asks for credentials"),
        (["deploy", "x", "--engine", "smoke"], "--engine is flower or mqtt"),
        (["deploy", "x", "--json", "rounds.json"], "use it with --try 3"),
        (["deploy", "--try", "2", "--clients", "5"], "leave --clients 5 out"),
        (["deploy", "x", "--web-port", "8080"], "use them with --engine mqtt"),
        (["deploy", "x", "--web", "--try", "2"], "use them with --engine mqtt"),
        (["deploy", "x", "--engine", "mqtt", "--web"], "use it with --try 2"),
        (["deploy", "--engine", "mqtt", "--try", "2", "--web", "--model", "lenet"], "trains softmax, mlp:H"),
        (["deploy", "x", "--engine", "mqtt", "--host", "10.0.0.5"], "add --secure"),
    ],
)
def test_a_slip_is_named(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, text = said(capsys, monkeypatch, *arguments)
    assert code == 2
    assert words in text


@pytest.mark.parametrize("arguments", [["serve"], ["join", "--client", "0"]])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_broker(tmp_path, arguments, sent):
    command = [sys.executable, "-m", "desketch", *arguments, f"mqtt://127.0.0.1:{free_port()}"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "no connection to the broker" in line:
                assert "Connection refused" in line
                break
        process.send_signal(sent)
        assert process.wait(timeout=30) == 128 + sent  # the patience is a minute
    assert not (tmp_path / "runs").exists()


def test_serve_has_its_name_over_its_table_and_counts_the_bytes_of_earlier_rounds(capsys, monkeypatch, tmp_path):
    def serve(address, config, folder, *, observer, **options):
        observer.on_round(
            RoundRecord(round=2, metrics={}, bytes_up=500, bytes_down=500, asked=1, participants=1, refused={},
                        dropped=0, late=0, eta_global=1.0, digest="", seconds=0.0)
        )  # fmt: skip
        names = ("bytes_up_per_client", "bytes_down_per_client", "fedavg_bytes_per_client", "times_fewer_bytes")
        return dict.fromkeys((*names, "seconds"), 1.0) | {
            "rounds": 2, "stopped_by": "rounds", "replica_digest": "ab", "epsilon": None, "refused": None,
            "skipped_rounds": None,
        }  # fmt: skip

    monkeypatch.setattr("desketch.integrations.mqtt.party.serve_over_mqtt", serve)
    write_rows(tmp_path / "metrics.jsonl", [{"round": 1, "bytes_up": 4000, "bytes_down": 3000}])
    code, text = said(capsys, monkeypatch, "serve", "mqtt://127.0.0.1", "--rounds", 2, "--out", tmp_path)
    assert code == 0
    assert text.startswith("desketch serve ")
    assert "round 2/2, 8 kB on the wire" in text


def test_a_missing_broker_is_named_with_its_package(capsys, monkeypatch):
    monkeypatch.setattr(broker, "find_tool", lambda name, advice: _missing(name, advice))
    code, text = said(capsys, monkeypatch, "deploy", "--engine", "mqtt", "--try", "2")
    assert code == 2
    assert "apt-get install mosquitto" in text


def _missing(name, advice):
    from desketch.errors import RunError

    raise RunError(f"{name} not found; {advice}")


def test_a_deployment_is_written_with_a_folder_of_keys_for_each(capsys, monkeypatch, tmp_path):
    folder = tmp_path / "my-run"
    asked = ["--engine", "mqtt", "--clients", "2", "--host", "10.0.0.5", "--secure", "--web-port", "8084"]
    code, text = said(capsys, monkeypatch, "deploy", folder, *asked)
    assert code == 0, text
    scripts = sorted(path.name for path in folder.glob("*.sh"))
    assert scripts == ["1-broker.sh", "2-client-0.sh", "2-client-1.sh", "3-server.sh"]
    assert sorted(path.name for path in (folder / "keys").iterdir()) == ["broker", "client-0", "client-1", "server"]
    assert RunConfig.load(folder / "run.yaml").clients == 2
    client = (folder / "2-client-1.sh").read_text()
    assert "desketch join mqtts://10.0.0.5:8883 --config run.yaml" in client
    assert "--credentials keys/client-1" in client
    configuration = (folder / "broker" / "mosquitto.conf").read_text()
    assert "protocol websockets" in configuration
    assert "listener 8084\n" in configuration  # on every interface
    access = (folder / "broker" / "access").read_text()
    assert "pattern read d/%u/o" in access
    assert "pattern write d/%u/r" in access


def test_a_broker_in_the_clear_listens_on_loopback_only(tmp_path):
    plan = MqttPlan(folder=tmp_path, config=RunConfig(clients=2), port=1883)
    plan.write()
    configuration = (tmp_path / "broker" / "mosquitto.conf").read_text()
    assert "listener 1883 127.0.0.1\n" in configuration
    assert "--client 1" in (tmp_path / "2-client-1.sh").read_text()
