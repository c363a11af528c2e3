"""MqttClient: one client of a run, a long-lived process that a broker pushes orders to.

Effects happen once although messages may come twice or not at all.  An order is answered, the answer is stored, then
sent, and only then is the order acknowledged (QoS 1); an order that was answered before gets the same bytes again, from
the disk if need be; one that is older than another is dropped; of several that wait only the newest counts, since the
server builds an order on what this client has confirmed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from desketch.core.files import read_sealed, write_durably
from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import DesketchError, WireError
from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.inbox import Message
from desketch.integrations.mqtt.link import KEEPALIVE, Link
from desketch.integrations.mqtt.stamp import Stamp
from desketch.integrations.mqtt.traffic import Traffic

__all__ = ["QOS", "Answered", "LastAnswer", "MqttClient"]

QOS = 0  # fewer bytes than QoS 1 at every loss that was measured, and no collapse at 20 %: docs/mqtt.md
_LOOK_SECONDS = 1.0  # how often a waiting client looks whether it was told to stop


@dataclass(frozen=True)
class Answered:
    """What became of an order, for whoever watches; ``repeated`` ones cost no work."""

    order: int
    reply: int
    repeated: bool
    traffic: Traffic


class LastAnswer:
    """The last order and its answer, in memory and in the client's folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "answer.safetensors"
        self._order, self._reply = b"", b""
        if self._path is not None:
            try:
                kept = unpack_tree(read_sealed(self._path, "the order is answered anew"))
                self._order, self._reply = bytes(kept["order"]), bytes(kept["reply"])
            except (OSError, KeyError, TypeError, DesketchError):
                pass  # none was kept, or half of one: the order is answered anew

    def given(self, order: bytes) -> bytes | None:
        """The answer to this very order, if it was the last."""
        return self._reply if self._reply and self._order == hashlib.sha256(order).digest() else None

    def keep(self, order: bytes, reply: bytes) -> None:
        """Keep the answer; when this returns it may leave."""
        self._order, self._reply = hashlib.sha256(order).digest(), reply
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(self._path, pack_tree({"order": self._order, "reply": reply}, sealed=True))


@dataclass(frozen=True)
class _Waiting:
    stamp: Stamp
    order: bytes
    message: Message


class MqttClient:
    """Answers the orders of one client until the run is over or somebody says stop.

    Args:
        address: the broker.
        client: its number.
        answer: from an order to a reply, `ClientSession.answer`.
        credentials: its folder of credentials.
        folder: where its last answer outlives the process; None: in memory only.
        qos: 0, or 1.
        keepalive: seconds of silence after which a ping is sent.

    """

    def __init__(
        self,
        address: Address,
        client: int,
        answer: Callable[[bytes], bytes],
        *,
        credentials: Path | None = None,
        folder: Path | None = None,
        qos: int = QOS,
        keepalive: int = KEEPALIVE,
    ) -> None:
        self.client, self._answer, self._topics = client, answer, address.topics
        self._last = LastAnswer(folder)
        self._ready = threading.Condition()
        self._waiting: _Waiting | None = None
        self._newest: Stamp | None = None
        self.over = False
        self.link = Link(
            address,
            name=str(client) if address.tls else f"{address.root}/{client}",
            credentials=credentials,
            subscriptions=[self._topics.orders(client), self._topics.everybody],
            will=self._topics.presence(client),
            qos=qos,
            on_message=self._receive,
            on_connect=lambda: self._here(b"1"),
            keepalive=keepalive,
        )

    def run(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        on_answer: Callable[[Answered], None] = lambda answered: None,
        patience: float = 60.0,
    ) -> None:
        """Connect and answer; returns when the run is over, or ``stop`` says so."""
        self.link.open(patience=patience, stop=stop)
        try:
            while not stop():
                self.link.check()
                waiting = self._next()
                if waiting is not None:
                    on_answer(self._serve(waiting))
                elif self.over:
                    return
        finally:
            self.link.close(last=(self._topics.presence(self.client), b""))

    def _serve(self, waiting: _Waiting) -> Answered:
        reply = self._last.given(waiting.order)
        repeated = reply is not None
        if reply is None:
            try:
                reply = self._answer(waiting.order)
                self._last.keep(waiting.order, reply)
            except WireError:  # not an order at all; whoever sent it waits in vain
                reply = b""
        with self._ready:
            again = self._waiting  # what comes after the reply has left may ask for it because it was lost
        sent = bool(reply) and self.link.publish(self._topics.replies(self.client), reply)
        self.link.acknowledge(waiting.message)
        with self._ready:
            if sent and again is not None and again is self._waiting and again.order == waiting.order:
                self.link.acknowledge(again.message)  # it asked for what has just left
                self._waiting = None
        return Answered(len(waiting.order), len(reply), repeated, self.link.traffic())

    def _next(self) -> _Waiting | None:
        with self._ready:
            if self._waiting is None and not self.over:
                self._ready.wait(_LOOK_SECONDS)
            waiting, self._waiting = self._waiting, None
            return waiting

    def _receive(self, messages: Sequence[Message]) -> None:
        """Keep the newest order; called in the link's thread."""
        for message in messages:
            self._sort_in(message)

    def _sort_in(self, message: Message) -> None:
        parts = Stamp.split(message.payload)
        if parts is None:
            self.link.acknowledge(message)
            return
        stamp, order = parts
        with self._ready:
            if stamp.before(self._newest) or (stamp == self._newest and not message.dup):
                self.link.acknowledge(message)
                return
            self._newest = stamp
            if self._waiting is not None:
                self.link.acknowledge(self._waiting.message)
            self._waiting = _Waiting(stamp, order, message) if order else None
            self.over = not order
            self._ready.notify()

    def _here(self, data: bytes) -> None:
        self.link.publish(self._topics.presence(self.client), data, retain=True)
