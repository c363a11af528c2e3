"""A broker on loopback, parties in threads of this process, and a proxy that does to messages what networks do."""

import sys
from pathlib import Path

import pytest

from desketch.errors import RunError
from desketch.integrations.mqtt import broker as brokers

sys.path[:0] = [str(Path(__file__).parent)]


@pytest.fixture
def mosquitto():
    """The path of mosquitto; tests that need it skip where it is missing."""
    try:
        return brokers.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")


@pytest.fixture
def broker(mosquitto, tmp_path):
    """A broker in the clear."""
    from mqtt_bed import Broker

    with Broker(tmp_path, secure=False) as made:
        yield made


@pytest.fixture
def secure_broker(mosquitto, tmp_path):
    """A broker that knows three clients and a server by their certificates."""
    from mqtt_bed import Broker

    with Broker(tmp_path, secure=True) as made:
        yield made
