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


def in_process():
    import mqtt_bed

    made = mqtt_bed.setup()
    federation = made.federation()
    federation.clients = [ConfiguredTrainer(made, client).participant for client in range(mqtt_bed.CLIENTS)]
    run(federation, rounds=ROUNDS)
    return federation.digest()


def over_mqtt(folder):
    import mqtt_bed

    parties = [mqtt_bed.Counted(client) for client in range(mqtt_bed.CLIENTS)]
    with mqtt_bed.Broker(folder, secure=True) as made, made.carrier() as carrier:
        clients = [made.client(number, party.answer) for number, party in enumerate(parties)]
        with mqtt_bed.Threads(*clients):
            session = mqtt_bed.serve(carrier, rounds=ROUNDS)[1]
    return session.digest()


def over_flower(folder):
    """Flower's messages, records and apps, with a grid in this process."""
    import mqtt_bed
    from local_grid import LocalGrid

    from desketch.integrations.flower import simulation
    from desketch.integrations.flower.carrier import GridCarrier

    made = mqtt_bed.setup()
    session = server_session(made)
    app = simulation._client(made.config.model_dump_json(), str(folder))
    grid = LocalGrid({100 + client: app for client in range(mqtt_bed.CLIENTS)}, folder)
    configured_rounds(made, session, GridCarrier(grid, session), nodes=mqtt_bed.CLIENTS).run(ROUNDS)
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


@pytest.mark.usefixtures("flower_task")
@pytest.mark.parametrize("flower", [over_flower, pytest.param(over_flower_s_own_engine, marks=pytest.mark.slow)])
def test_the_same_seed_has_one_digest_in_process_over_mqtt_and_over_flower(flower, tmp_path):
    try:
        broker.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")
    here = in_process()
    assert over_mqtt(tmp_path / "mqtt") == here
    assert flower(tmp_path / "flower") == here
