"""serve and join: the run of `federate`, to the bit, with every party on its own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch

import desketch as ds
from desketch.errors import ConfigError, InputError, PrivacyError, RunError
from desketch.integrations.mqtt import broker
from desketch.privacy.accountants import epsilon
from desketch.session.store import FolderStore

sys.path[:0] = [str(Path(__file__).parents[1] / "integrations" / "mqtt")]


def model():
    """The same for every party; torch's own seed is the process's, and the parties here are threads of one."""
    rng = torch.Generator().manual_seed(3)
    made = torch.nn.Linear(60, 3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=rng))
    return made


def data(client):
    rng = torch.Generator().manual_seed(client)
    return ds.Client(torch.randn(20, 60, generator=rng), torch.randint(0, 3, (20,), generator=rng))


WORK = {"loss": torch.nn.functional.cross_entropy, "local_steps": 2, "batch_size": 8}


@pytest.fixture
def mosquitto():
    try:
        broker.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")


def test_a_run_apart_is_the_run_of_federate(mosquitto, tmp_path):
    from mqtt_bed import Broker

    parties = [data(0), data(1)]
    whole = ds.federate(model(), parties, rounds=4, wire=ds.Wire(compression=2), client_momentum=0.8, **WORK)
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
            client_momentum=0.8,
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


PER_STEP = ds.PerStep(clip=1.0, delta=1e-3, noise_multiplier=1.5)
BY_CLIENT = ds.SketchClip(clip=1.0, delta=1e-2, noise_multiplier=2.0)
ROUNDS = 3


@pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")  # weak on purpose: what is applied is looked at
@pytest.mark.parametrize(("privacy", "terms"), [(PER_STEP, {}), (BY_CLIENT, {"clients": 2})])
def test_a_private_run_apart_charges_each_client_once_a_round_however_often_it_is_asked(
    mosquitto, tmp_path, monkeypatch, privacy, terms
):
    from mqtt_bed import Broker

    from desketch.integrations.mqtt.client import MqttClient

    asked = {0: [], 1: []}
    make = MqttClient.__init__

    def twice(self, address, client, answer, **options):
        def wrapped(order):  # below what keeps the last answer: the session itself is asked again
            replies = answer(order), answer(order)
            asked[client].append(replies)
            return replies[1]

        make(self, address, client, wrapped, **options)

    monkeypatch.setattr(MqttClient, "__init__", twice)
    joined, failures = {}, []
    with Broker(tmp_path, secure=False) as made:

        def be(client):
            try:
                joined[client] = ds.join(
                    made.address().url,
                    model(),
                    data(client),
                    number=client,
                    state=tmp_path / f"state-{client}",
                    privacy=privacy,
                    rounds=ROUNDS,
                    **terms,
                    **WORK,
                )
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=be, args=(client,), daemon=True) for client in range(2)]
        for thread in threads:
            thread.start()
        served = ds.serve(
            made.address().url, model(), clients=2, rounds=ROUNDS, wire=ds.Wire(compression=2), privacy=privacy
        )
        for thread in threads:
            thread.join(30)
    assert failures == []
    assert {run.digest for run in joined.values()} == {served.digest}
    assert all(set(row["refused"]) == set() for row in served.history)
    for client, run in joined.items():
        assert len(asked[client]) >= ROUNDS
        assert all(first == second for first, second in asked[client])
        ledger = FolderStore(tmp_path / f"state-{client}").load_ledger()
        assert (ledger.serial, *ledger.rounds.values()) == (ROUNDS, ROUNDS)
        ((count,),) = [events.values() for events in ledger.spent.spent.values()]
        assert count == ROUNDS
        assert run.epsilon == epsilon(ledger.spent, privacy.delta)
    if privacy is BY_CLIENT:
        assert served.epsilon == pytest.approx(joined[0].epsilon)
    else:
        assert served.epsilon is None  # each client's own


@pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")
@pytest.mark.parametrize(
    ("there", "here", "rounds"),
    [(PER_STEP, None, ROUNDS), (None, PER_STEP, ROUNDS), (BY_CLIENT, PER_STEP, ROUNDS), (PER_STEP, PER_STEP, 2)],
)
def test_a_client_refuses_a_server_that_promises_something_else(tmp_path, there, here, rounds):
    from desketch.api import apart
    from desketch.api.promise import Promise

    promise = there and Promise(privacy=there, rounds=rounds, clients=2)
    flat = apart.FlatModel(model())
    agreement = apart.Agreement(
        name=promise.name("run") if promise else "run",
        seed=0,
        names=flat.names,
        shapes=flat.shapes,
        rounds=rounds if promise else None,
    )
    own = here and Promise(privacy=here, rounds=ROUNDS)
    settings = {"wire": ds.Wire(compression=1, codec="f32"), "privacy": here, "statistics": "refuse", "robust": None}
    settings |= {"local_steps": 2, "batch_size": 8, "eta_local": 0.1, "server_optimizer": "sgd", "eta_global": "auto"}
    settings |= {
        "momentum": None,
        "client_momentum": 0.0,
        "tensor_weights": "none",
        "average": 1,
        "fraction": 1.0,
        "seed": 0,
    }

    def parties(seed, codec="f32"):
        return apart.Parties(
            model(), [data(0)], apart.Settings(**settings), loss=WORK["loss"], optimizer=None, evaluate=None
        )

    trainer = apart._ModelTrainer(0, parties, own)
    with pytest.raises(PrivacyError, match="the server's run is"):
        trainer.start(agreement)


def test_terms_of_privacy_that_nothing_keeps_are_refused(tmp_path):
    url = "mqtt://127.0.0.1:1"
    for wrong, match, kind in [
        ({"rounds": 3}, "give privacy", ConfigError),
        ({"privacy": PER_STEP, "state": tmp_path}, "number of rounds", ConfigError),
        ({"privacy": PER_STEP, "rounds": 3}, "state=FOLDER", PrivacyError),
        ({"privacy": BY_CLIENT, "rounds": 3, "state": tmp_path}, "clients=N", ConfigError),
    ]:
        with pytest.raises(kind, match=match):
            ds.join(url, model(), data(0), number=0, **wrong, **WORK)
