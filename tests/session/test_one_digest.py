"""One seed, one digest: in process, over MQTT and over Flower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from desketch.errors import RunError
from desketch.fed import run
from desketch.integrations.mqtt import broker
from desketch.tasks.parties import ConfiguredTrainer, configured_rounds, server_session

sys.path[:0] = [str(Path(__file__).parents[1] / "integrations" / engine) for engine in ("flower", "mqtt")]

ROUNDS = 3
LARGER = {"clients": 24, "model": "mlp:64", "compression": 2, "fraction": 0.75, "client_momentum": 0.8}


def in_process(rounds=ROUNDS):
    import mqtt_bed

    made = mqtt_bed.setup()
    federation = made.federation()
    federation.clients = [ConfiguredTrainer(made, client).participant for client in range(mqtt_bed.CLIENTS)]
    run(federation, rounds=rounds)
    return federation.digest()


def over_mqtt(folder, rounds=ROUNDS):
    import mqtt_bed

    parties = [mqtt_bed.Counted(client) for client in range(mqtt_bed.CLIENTS)]
    with mqtt_bed.Broker(folder, secure=True, clients=mqtt_bed.CLIENTS) as made, made.carrier() as carrier:
        clients = [made.client(number, party.answer) for number, party in enumerate(parties)]
        with mqtt_bed.Threads(*clients):
            session = mqtt_bed.serve(carrier, rounds=rounds)[1]
    return session.digest()


def over_flower(folder, rounds=ROUNDS):
    """Flower's messages, records and apps, with a grid in this process."""
    import mqtt_bed
    from local_grid import LocalGrid

    from desketch.integrations.flower import simulation
    from desketch.integrations.flower.carrier import GridCarrier

    made = mqtt_bed.setup()
    session = server_session(made)
    app = simulation._client(made.config.model_dump_json(), str(folder))
    grid = LocalGrid({100 + client: app for client in range(mqtt_bed.CLIENTS)}, folder)
    configured_rounds(made, session, GridCarrier(grid, session), nodes=mqtt_bed.CLIENTS).run(rounds)
    return session.digest()


def over_flower_s_own_engine(folder):
    import mqtt_bed

    flags = [f"--{name.replace('_', '-')}={value}" for name, value in mqtt_bed.SETTINGS.items()]
    command = [sys.executable, "-m", "desketch", "train", "--engine", "flower-sim", f"--rounds={ROUNDS}", *flags]
    done = subprocess.run(
        [*command, "--out", str(folder / "run"), "--json", "-"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)["replica_digest"]


@pytest.fixture
def flower_task(monkeypatch):
    """Flower stamps messages with the task they belong to."""
    identity = pytest.importorskip("flwr.supercore.task_identity", reason="the extra flower is not installed")
    for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
        monkeypatch.setattr(identity.TaskIdentity, name, value)


@pytest.fixture
def mosquitto():
    try:
        broker.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")


@pytest.mark.slow
@pytest.mark.usefixtures("flower_task", "mosquitto")
def test_so_it_is_with_two_dozen_clients_of_which_some_are_asked(tmp_path, monkeypatch):
    """Several blocks of rows to add up, a number beside each sketch, replies in whatever order they come."""
    import mqtt_bed

    monkeypatch.setattr(mqtt_bed, "CLIENTS", LARGER["clients"])
    for name, value in LARGER.items():
        monkeypatch.setitem(mqtt_bed.SETTINGS, name, value)
    monkeypatch.setattr("desketch.wire.rows._CACHED", 1)  # eight rows at once
    here = in_process(12)
    assert over_mqtt(tmp_path / "mqtt", 12) == here
    assert over_flower(tmp_path / "flower", 12) == here


@pytest.mark.usefixtures("flower_task", "mosquitto")
@pytest.mark.parametrize("flower", [over_flower, pytest.param(over_flower_s_own_engine, marks=pytest.mark.slow)])
def test_the_same_seed_has_one_digest_in_process_over_mqtt_and_over_flower(flower, tmp_path):
    here = in_process()
    assert over_mqtt(tmp_path / "mqtt") == here
    assert flower(tmp_path / "flower") == here
