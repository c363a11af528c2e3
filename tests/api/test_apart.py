"""serve and join: the run of `federate`, to the bit, with every party on its own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch

import desketch as ds
from desketch.errors import InputError, RunError
from desketch.integrations.mqtt import broker

sys.path[:0] = [str(Path(__file__).parents[1] / "integrations" / "mqtt")]


def model():
    torch.manual_seed(3)
    return torch.nn.Linear(60, 3)


def data(client):
    rng = torch.Generator().manual_seed(client)
    return ds.Client(torch.randn(20, 60, generator=rng), torch.randint(0, 3, (20,), generator=rng))


WORK = {"loss": torch.nn.functional.cross_entropy, "local_steps": 2, "batch_size": 8}


def test_a_run_apart_is_the_run_of_federate(tmp_path):
    from mqtt_bed import Broker

    try:
        broker.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")
    whole = ds.federate(model(), [data(0), data(1)], rounds=4, wire=ds.Wire(compression=2), **WORK)
    joined = {}
    with Broker(tmp_path, secure=True, clients=2) as made:

        def be(client):
            keys = made.credentials(client)
            joined[client] = ds.join(made.address().url, model(), data(client), credentials=keys, **WORK)

        threads = [threading.Thread(target=be, args=(client,), daemon=True) for client in range(2)]
        for thread in threads:
            thread.start()
        served = ds.serve(
            made.address().url,
            model(),
            clients=2,
            rounds=4,
            wire=ds.Wire(compression=2),
            credentials=made.credentials("server"),
            evaluate=lambda module: {"norm": float(module.weight.detach().norm())},
        )
        for thread in threads:
            thread.join(30)
    assert served.digest == whole.digest
    assert {run.digest for run in joined.values()} == {whole.digest}
    assert torch.equal(served.model.weight, whole.model.weight)
    assert [row["round"] for row in served.history] == [1, 2, 3, 4]
    assert all("norm" in row for row in served.history)
    assert joined[0].rounds == 4


def test_what_cannot_join_is_refused_before_it_connects():
    url = "mqtt://127.0.0.1:1"
    with pytest.raises(InputError, match="give desketch"):
        ds.join(url, model(), object(), number=0)
    with pytest.raises(InputError, match="loss"):
        ds.join(url, model(), ds.Client([(torch.zeros(60), 0)]), number=0)
    with pytest.raises(InputError, match="which client"):
        ds.join(url, model(), data(0), **WORK)
    with pytest.raises(InputError, match="in the clear"):
        ds.serve("mqtt://10.0.0.1", model(), clients=1, rounds=1)
