"""What every carrier must do, and beds in which each of them can be asked to.

In every bed `NODES` answer, `SILENT` is there and does not, `ABSENT` is not there.  A node answers an order with `echo`
of it, so that a test can tell what arrived, where, and to what it is the answer.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from memory_carrier import MemoryCarrier

NODES, SILENT, ABSENT = (0, 1, 2, 3), 4, 9
PATIENCE = 25.0  # seconds on the carrier's clock: a hang, or a message that waits for the next ping, is found


def echo(node, order):
    """The answer of a node: its number, the order's digest, the order."""
    return bytes([node]) + hashlib.sha256(order).digest() + order


def collect(carrier, wanted, *, patience=PATIENCE):
    """The arrivals, until each of the wanted nodes has one; a carrier that brings none in time fails."""
    came, end = [], carrier.now() + patience
    while set(wanted) - {arrival.node for arrival in came}:
        assert carrier.now() < end, f"nothing came of {set(wanted) - {arrival.node for arrival in came}}"
        came += carrier.arrivals(1.0)
    return came


def ask(carrier, orders, *, seconds=PATIENCE):
    """Send each node its order and return what came, by node."""
    for node, order in orders.items():
        carrier.send(node, order, carrier.now() + seconds)
    return {arrival.node: arrival for arrival in collect(carrier, orders)}


@contextmanager
def in_memory(folder):
    """The carrier of the protocol's own tests."""
    parties = {node: SimpleNamespace(answer=lambda order, node=node: echo(node, order)) for node in NODES}
    yield MemoryCarrier({**parties, SILENT: None})


@contextmanager
def over_flower(folder):
    """A Flower grid in this process, with the messages that Flower has."""
    from flwr.app import Message
    from flwr.supercore.task_identity import TaskIdentity
    from local_grid import LocalGrid

    from desketch.integrations.flower import record
    from desketch.integrations.flower.carrier import GridCarrier

    def app(node):
        return lambda message, context: Message(record.content(echo(node, record.read(message))), reply_to=message)

    class Refusing(LocalGrid):
        """A grid that takes no messages to nodes it does not know; Flower then gives them no name."""

        def push_messages(self, messages):
            return [name for message in messages for name in self._push(message)]

        def _push(self, message):
            return super().push_messages([message]) if message.metadata.dst_node_id in self.apps else [""]

    silent = {(SILENT, 1): lambda app, message, context: None}
    grid = Refusing({**{node: app(node) for node in NODES}, SILENT: app(SILENT)}, folder, silent)
    with patch.multiple(TaskIdentity, _run_id=1, _node_id=1, _task_id=1):  # messages are stamped with their task
        yield GridCarrier(grid, SimpleNamespace(t=0), poll_seconds=0.01)


def over_mqtt(secure):
    """A broker on loopback and a client a node, each in a thread."""

    @contextmanager
    def bed(folder):
        from mqtt_bed import Broker, Threads

        from desketch.integrations.mqtt.carrier import MqttCarrier

        with ExitStack() as stack:
            broker = stack.enter_context(Broker(folder, secure=secure, clients=ABSENT + 1))
            carrier = MqttCarrier(broker.address(), credentials=broker.credentials("server"), clients=ABSENT + 1)
            stack.enter_context(carrier)
            clients = [broker.client(node, lambda order, node=node: echo(node, order)) for node in NODES]
            clients.append(broker.client(SILENT, lambda order: b""))
            stack.enter_context(Threads(*clients))
            while len(carrier.nodes()) < len(clients):
                carrier.arrivals(1.0)
            yield carrier

    return bed


BEDS = {"memory": in_memory, "flower": over_flower, "mqtt": over_mqtt(False), "mqtts": over_mqtt(True)}
