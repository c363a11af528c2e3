"""A broker under test, clients in threads, and the server's rounds in the test itself."""

from __future__ import annotations

import threading

from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.broker import mosquitto, write_broker
from desketch.integrations.mqtt.carrier import MqttCarrier
from desketch.integrations.mqtt.client import MqttClient
from desketch.integrations.mqtt.credentials import make_credentials
from desketch.integrations.processes import Processes, free_port
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.rounds import Rounds
from desketch.tasks import RunConfig, prepare
from desketch.tasks.parties import ConfiguredTrainer, configured_rounds, server_session

CLIENTS = 3
SETTINGS = {
    "task": "digits",
    "model": "softmax",
    "partition": "iid",
    "compression": 4,
    "local_steps": 2,
    "clients": CLIENTS,
}


class Broker(Processes):
    """A mosquitto of its own."""

    def __init__(self, folder, *, secure, clients=CLIENTS):
        super().__init__(folder)
        self.port, self.secure, self.keys = free_port(), secure, folder / "keys"
        if secure:
            make_credentials(self.keys, "127.0.0.1", clients)
        own = self.keys / "broker" if secure else None
        self.configuration = write_broker(folder / "broker", clients=clients, port=self.port, keys=own)
        self.start_again()

    def start_again(self):
        self.start("broker", [mosquitto(), "-c", str(self.configuration)])
        self.wait_for_port("broker", "127.0.0.1", self.port)

    def address(self, port=None):
        return Address(host="127.0.0.1", port=port or self.port, tls=self.secure)

    def credentials(self, party):
        return self.keys / (party if party == "server" else f"client-{party}") if self.secure else None

    def carrier(self, **options):
        return MqttCarrier(self.address(), credentials=self.credentials("server"), clients=CLIENTS, **options)

    def client(self, number, answer, *, port=None, **options):
        return MqttClient(self.address(port), number, answer, credentials=self.credentials(number), **options)


class Threads:
    """Clients that run in threads until the block ends."""

    def __init__(self, *clients):
        self._stop = threading.Event()
        self.failures = []
        self._threads = [threading.Thread(target=self._run, args=(client,), daemon=True) for client in clients]

    def _run(self, client):
        try:
            client.run(stop=self._stop.is_set)
        except Exception as error:
            self.failures.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self.join()

    def join(self):
        for thread in self._threads:
            thread.join(30)


class Counted:
    """A session that counts how often it really worked on each round."""

    def __init__(self, client, store=None):
        self.session = ClientSession(client, ConfiguredTrainer(setup(), client), store or MemoryStore())
        self.worked = []

    def answer(self, order):
        reply = self.session.answer(order)
        self.worked.append((order, reply))
        return reply


def setup():
    """What every party makes of the settings, for itself."""
    return prepare(RunConfig(**SETTINGS))


def serve(carrier, *, rounds, seconds=60.0, repeat_after=None):
    """Serve; the rows and the session."""
    made = setup()
    session = server_session(made, enrolled={client: client for client in range(CLIENTS)})
    rows = []
    driver: Rounds = configured_rounds(
        made, session, carrier, nodes=CLIENTS, seconds=seconds, repeat_after=repeat_after
    )
    driver.on_row = rows.append
    driver.run(rounds)
    return rows, session


def gather(carrier, count, seconds=20.0):
    """Wait for so many arrivals."""
    came, end = [], carrier.now() + seconds
    while len(came) < count and carrier.now() < end:
        came += carrier.arrivals(0.5)
    return came


def wait_for_nodes(carrier, count, seconds=20.0):
    end = carrier.now() + seconds
    while len(carrier.nodes()) != count and carrier.now() < end:
        carrier.arrivals(0.2)
    assert len(carrier.nodes()) == count
