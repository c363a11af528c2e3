"""A privacy setting is applied or refused, whichever way a federation is built; it is never left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from desketch.errors import ConfigError, PrivacyError
from desketch.fed import Federation, SketchChannel, make_optimizer, run
from desketch.fed.engine import LoopEngine
from desketch.fed.tensor_client import tensor_clients
from desketch.keys import Key
from desketch.mesh.topology import build_topology
from desketch.mesh.tree import TreeMesh
from desketch.tasks import RunConfig, prepare

# the noise is weak on purpose: these tests look at what is applied, not at what it is worth
pytestmark = pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")

SMALL = {"task": "digits", "model": "softmax", "clients": 3, "partition": "iid", "rounds": 2, "local_steps": 1}
NOISE = {"clip": 1.0, "delta": 1e-3, "noise_multiplier": 1.0}
PRIVATE = {
    "per-step": {"mechanism": "per-step", **NOISE},
    "clients": {"mechanism": "sketch-clip", **NOISE},
    "examples": {"mechanism": "sketch-clip", "unit": "example", **NOISE},
}


@pytest.fixture(params=PRIVATE)
def setup(request):
    return prepare(RunConfig(**SMALL, dp=PRIVATE[request.param]))


def test_a_configured_federation_is_private_without_being_asked(setup):
    private, plain = setup.federation(), prepare(RunConfig(**SMALL)).federation()
    for federation in (private, plain):
        run(federation, rounds=2)
    assert private.privacy is not None
    assert private.privacy.ledger.epsilon() > 0
    assert private.digest() != plain.digest()


def parts(setup, privacy):
    engine = LoopEngine(setup.model, privacy.step if privacy else None)
    return {
        "clients": tensor_clients(setup.clients, engine, setup.work, privacy=privacy),
        "channel": SketchChannel(d=setup.model.d, b=20, key=Key(1), mechanism=privacy.sketch if privacy else None),
        "optimizer": make_optimizer("sgd"),
        "w0": setup.model.flatten(),
    }


def test_a_federation_put_together_by_hand_cannot_leave_it_out(setup):
    privacy = setup.privacy()
    assert Federation(**parts(setup, privacy), privacy=privacy).privacy is privacy
    with pytest.raises(PrivacyError):  # named, but nobody applies it
        Federation(**parts(setup, None), privacy=privacy)
    with pytest.raises(PrivacyError):  # applied, but nobody charges it
        Federation(**parts(setup, privacy))
    with pytest.raises(PrivacyError):  # another run's mechanism
        Federation(**parts(setup, setup.privacy()), privacy=privacy)


def test_without_a_server_it_is_refused(setup):
    with pytest.raises(ConfigError, match="dp"):
        RunConfig(**SMALL, dp=setup.config.dp, topology="ring")
    with pytest.raises(ConfigError, match="privacy"):
        TreeMesh(topology=build_topology("ring", 3), **parts(setup, setup.privacy()))


def test_a_mechanism_given_in_place_of_the_configured_one_is_the_one_applied(setup):
    other = setup.privacy()
    assert setup.federation(privacy=replace(other)).privacy.ledger is other.ledger
