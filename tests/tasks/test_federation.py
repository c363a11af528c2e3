"""From a configuration to the parties: the same everywhere, and each setting where it belongs."""

from __future__ import annotations

import pytest
import torch

from desketch.fed import run
from desketch.tasks import RunConfig, prepare

SMALL = {"model": "mlp:8", "clients": 5, "rounds": 2, "local_steps": 2}


def test_two_parties_derive_the_same_run_from_one_configuration() -> None:
    digests = set()
    for _ in range(2):
        federation = prepare(RunConfig(**SMALL)).federation()
        run(federation, rounds=2)
        digests.add(federation.server.replica.digest())
    assert len(digests) == 1


def test_another_seed_is_another_run() -> None:
    one, two = (prepare(RunConfig(**SMALL, seed=seed)) for seed in (0, 1))
    assert one.channel().key != two.channel().key
    assert one.channel().run != two.channel().run
    assert not torch.equal(one.model.flatten(), two.model.flatten())


def test_settings_reach_their_parts() -> None:
    setup = prepare(
        RunConfig(**SMALL, b=40, codec="int8", codec_down="f16", weighting="uniform", server_optimizer="adam")
    )
    channel = setup.channel()
    assert (channel.b, channel.wire.codec, channel.wire.down) == (40, "int8", "f16")
    assert {client.weight for client in setup.clients} == {1.0}
    assert sum(len(client.y) for client in setup.clients) == len(setup.task.y_train)
    assert setup.federation().optimizer.name == "adam"
    assert setup.privacy() is None


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_validation_accuracy_is_there_when_validation_data_are(validation: float) -> None:
    setup = prepare(RunConfig(**SMALL, validation=validation))
    assert ("val_accuracy" in setup.evaluate(setup.model.flatten())) == (validation > 0)
