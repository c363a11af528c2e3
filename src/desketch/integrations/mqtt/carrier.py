"""MqttCarrier: the server's end of a run over a broker; a node is the number of a client, as its topics have it.

Orders wait until the next look at what has come.  Those that are the same for everybody who is there leave once, on the
topic that all clients read, and the broker multiplies them.  At QoS 0 a message is lost only with a connection, and a
client that connects again says so: the order it has not answered is then sent again.  The rounds repeat what stays
without an answer for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from desketch.errors import InputError
from desketch.integrations.mqtt.address import SERVER, Address
from desketch.integrations.mqtt.client import QOS
from desketch.integrations.mqtt.inbox import Message
from desketch.integrations.mqtt.link import KEEPALIVE, Link
from desketch.integrations.mqtt.stamp import Stamps
from desketch.session.carrier import Arrival, Carrier

__all__ = ["REPEAT_SECONDS", "MqttCarrier"]

REPEAT_SECONDS = 60.0  # an order without an answer is sent again: for what a broker drops without a word


class MqttCarrier(Carrier):
    """Carries sessions over a broker; use it as a context manager, or `open` and `close` it.

    Args:
        address: the broker.
        credentials: the server's folder of credentials.
        clients: N; topics of other numbers are nobody's.
        qos: 0, or 1.
        keepalive: seconds of silence after which a ping is sent.

    """

    def __init__(
        self,
        address: Address,
        *,
        credentials: Path | None = None,
        clients: int | None = None,
        qos: int = QOS,
        keepalive: int = KEEPALIVE,
    ) -> None:
        self._topics, self._clients = address.topics, clients
        self._stamps = Stamps()
        self._changed = threading.Condition()
        self._present: set[int] = set()
        self._came: list[Arrival] = []
        self._news = False  # somebody connected
        self._queued: dict[int, bytes] = {}  # orders not sent yet
        self._open: dict[int, tuple[bytes, float]] = {}  # orders sent and not answered, with their deadlines
        self._back: set[int] = set()  # nodes that connected again while they owed an answer
        self.link = Link(
            address,
            name=SERVER if address.tls else f"{address.root}/{SERVER}",
            credentials=credentials,
            subscriptions=[self._topics.replies(), self._topics.presence()],
            qos=qos,
            on_message=self._receive,
            keepalive=keepalive,
        )

    def open(self, *, patience: float = 60.0, stop: Callable[[], bool] = lambda: False) -> bool:
        """Connect to the broker; False when ``stop`` ended the wait for it."""
        return self.link.open(patience=patience, stop=stop)

    def close(self, *, over: bool = False) -> None:
        """Leave; clients that are told the run is ``over`` end too."""
        self.link.close(last=(self._topics.everybody, self._stamps.next()) if over else None, retain=False)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(over=kind is None)

    def nodes(self) -> list[int]:
        """The clients that are connected."""
        self.link.check()
        with self._changed:
            return sorted(self._present)

    def send(self, node: int, data: bytes, deadline: float) -> None:
        """Queue an order; it leaves with the next look at what has come."""
        if not data:
            raise InputError("an empty order would tell the client that the run is over; send the bytes of an order")
        with self._changed:
            self._queued[node] = data
            self._open[node] = data, deadline
            self._back.discard(node)

    def arrivals(self, timeout: float) -> list[Arrival]:
        """Send what is queued, then wait for something to come."""
        self.link.check()
        self._flush()
        end = time.monotonic() + timeout
        with self._changed:
            while not (self._came or self._news or self._back) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            came, self._came, self._news = self._came, [], False
            back, self._back = self._back, set()
        for node in sorted(back):
            self._again(node)
        return came

    def _again(self, node: int) -> None:
        with self._changed:
            data, deadline = self._open.get(node, (b"", 0.0))
        if data and self.now() < deadline:
            self._publish(self._topics.orders(node), data, deadline)

    def _flush(self) -> None:
        with self._changed:
            queued, self._queued = self._queued, {}
            present = set(self._present)
            deadlines = {node: self._open[node][1] for node in queued if node in self._open}
        alike: dict[bytes, list[int]] = {}
        for node, data in queued.items():
            alike.setdefault(data, []).append(node)
        for data, nodes in alike.items():
            latest = max((deadlines.get(node, 0.0) for node in nodes), default=0.0)
            if len(nodes) > 1 and present <= set(nodes):
                self._publish(self._topics.everybody, data, latest)
            else:
                for node in nodes:
                    self._publish(self._topics.orders(node), data, latest)

    def _publish(self, topic: str, data: bytes, deadline: float) -> None:
        self.link.publish(topic, self._stamps.next() + data, expiry=deadline - self.now())

    def _receive(self, messages: Sequence[Message]) -> None:
        """Take messages in; called in the link's thread."""
        with self._changed:
            for message in messages:
                sender = self._topics.sender(message.topic)
                if sender is not None and (self._clients is None or sender[0] < self._clients):
                    self._sort_in(*sender, message.payload)
            self._changed.notify()
        for message in messages:
            self.link.acknowledge(message)

    def _sort_in(self, node: int, kind: str, data: bytes) -> None:
        if kind == "r":
            self._open.pop(node, None)
            self._came.append(Arrival(node=node, data=data))
        elif kind == "p" and data:
            if node in self._open and node not in self._queued and not self.link.qos:
                self._back.add(node)  # it is new, or it lost its connection: with it perhaps the order, or the reply
            self._present.add(node)
            self._news = True
        elif kind == "p":
            self._present.discard(node)
