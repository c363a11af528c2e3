"""Link: one party's connection to its broker, kept for as long as the party lives.

A lost connection is made again after a pause that doubles up to a minute, each time half to one and a half of it by
chance, so that thousands of clients of a restarted broker do not come back in the same second; one that brought a
message, or lasted, was worth its while, and the next pause is short again.  What cannot mend
itself ends the link with an error that says what to do: a refused certificate, a refused name, or another process that
took this party's place.

One thread reads and writes the socket.  Others put their messages in paho's queue and wake it: two threads that write
to one socket mix their messages, and one that cannot write all at once would leave the rest until the next ping.
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from desketch.errors import RunError
from desketch.integrations.mqtt.address import Address, tls_context
from desketch.integrations.mqtt.inbox import Inbox, Message, PahoClient
from desketch.integrations.mqtt.traffic import Traffic, of_socket

__all__ = ["KEEPALIVE", "Link"]

KEEPALIVE = 120  # seconds: a ping costs 250 bytes with its acknowledgements, a dead peer is found in three minutes
SESSION_SECONDS = 24 * 3600  # how long a broker keeps what an absent party must read (QoS 1 only)
_HANDSHAKE_SECONDS = 60.0  # 4 kB of TLS handshake at 10 kbit/s, shared by several parties
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_DUELS = 8  # connections in a row that stood and were soon lost again: two processes under one name do that
_TAKEN_OVER = 0x8E
_HOPELESS = {0x81, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x95, 0x9C, 0x9D}  # CONNACK reasons that waiting does not mend

Receive = Callable[[Sequence[Message]], None]
_LOG = logging.getLogger("desketch")


class Link:
    """A connection to a broker; ``on_message`` and ``on_connect`` are called in the link's own thread.

    Args:
        address: the broker.
        name: this party's MQTT client id; who connects with it later takes its place.
        credentials: the party's folder of credentials, for TLS.
        subscriptions: the topics it reads.
        will: the topic that the broker clears when this party is gone.
        qos: 0, or 1: then the broker keeps the session and messages are acknowledged by `acknowledge` only.
        on_message: called with the messages that came together.
        on_connect: called whenever the connection stands.
        keepalive: seconds of silence after which a ping is sent.

    """

    def __init__(
        self,
        address: Address,
        *,
        name: str,
        credentials: Path | None = None,
        subscriptions: Sequence[str] = (),
        will: str | None = None,
        qos: int = 0,
        on_message: Receive = lambda messages: None,
        on_connect: Callable[[], None] = lambda: None,
        keepalive: int = KEEPALIVE,
    ) -> None:
        self.address, self.name, self.qos, self.keepalive = address, name, qos, keepalive
        self._subscriptions = [(topic, SubscribeOptions(qos=qos)) for topic in subscriptions]
        self._receive, self._connected = on_message, on_connect
        self._failed: RunError | None = None
        self._last_error = ""
        self._past = Traffic()
        self._closing, self._standing = threading.Event(), threading.Event()
        self._client = PahoClient(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=qos > 0,
        )
        client = self._client
        client.connect_timeout = _HANDSHAKE_SECONDS
        client.max_queued_messages_set(0)
        client.max_inflight_messages_set(65535)
        context = tls_context(credentials, address)
        if context is not None:
            client.tls_set_context(context)
        if will is not None:
            client.will_set(will, b"", qos=qos, retain=True)
        client.on_connect, client.on_disconnect, client.on_message = self._on_connect, self._on_disconnect, self._on
        client.on_socket_register_write = lambda *_: None  # with one set, paho never writes in the thread of a caller
        self._bell: socket.socket | None = None
        client.on_socket_open, client.on_socket_close = self._on_open, self._on_close
        client.enable_logger(_errors(self._on_log))  # with on_log, paho would write a line about every packet
        self._thread = threading.Thread(target=self._run, name=f"mqtt {name}", daemon=True)

    def open(self, *, patience: float = 60.0, stop: Callable[[], bool] = lambda: False) -> bool:
        """Connect; a broker that is not there yet is said so, and waited for, ``patience`` seconds at most.

        Whether the connection stands: False when ``stop`` ended the wait; the link is then to be closed, as always.
        """
        deadline, told = time.monotonic() + patience, False
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + patience))
        self._thread.start()
        while not self._standing.wait(0.05):
            self.check()
            if stop():
                return False
            if self._last_error and not told:
                told = True
                _LOG.warning(
                    "no connection to the broker at %s yet (%s); trying again until %s, start it meanwhile",
                    self.address.url,
                    self._last_error,
                    until,
                )
            if time.monotonic() > deadline:
                self.close()
                raise RunError(
                    f"no broker answers at {self.address.url} ({self._last_error or 'no answer'}); is it running, and "
                    "is the address right? desketch deploy --engine mqtt writes one that can be started"
                )
        return True

    def check(self) -> None:
        """Raise what ended the link, if anything did."""
        if self._failed is not None:
            raise self._failed

    @property
    def connected(self) -> bool:
        """Whether the connection stands now."""
        return self._standing.is_set()

    def publish(self, topic: str, data: bytes, *, retain: bool = False, expiry: float | None = None) -> bool:
        """Send; whether the link could take it. At QoS 1 the broker drops what is older than ``expiry`` seconds."""
        properties = None
        if self.qos and expiry is not None:
            properties = Properties(PacketTypes.PUBLISH)
            properties.MessageExpiryInterval = max(1, int(expiry))
        if not self.qos and not self.connected:
            return False
        sent = self._client.publish(topic, data, qos=self.qos, retain=retain, properties=properties)
        self._wake()
        return bool(sent.rc == paho.MQTT_ERR_SUCCESS)

    def acknowledge(self, message: Message) -> None:
        """Tell the broker that a message has had its effect."""
        if message.qos:
            self._client.ack(message.mid, message.qos)
            self._wake()

    def close(self, *, last: tuple[str, bytes] | None = None, retain: bool = True) -> None:
        """Say goodbye; ``last`` is a message to leave behind.

        It has QoS 1 on any link: a socket that is closed with something unread on it is reset, and takes along what
        the broker has not read yet.
        """
        self._closing.set()
        stood = self.connected
        if last is not None and stood:
            info = self._client.publish(*last, qos=1, retain=retain)
            self._wake()
            with suppress(RuntimeError, ValueError):
                info.wait_for_publish(5.0)
        with suppress(OSError, ValueError):
            self._client.disconnect()
        self._wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(10.0 if stood else 1.0)  # where nothing stands, nothing is lost
        self._standing.clear()

    def traffic(self) -> Traffic:
        """Bytes at the interface of all connections so far."""
        now = self._socket()
        return self._past + of_socket(now.link if now else None)

    def _socket(self) -> Inbox | None:
        found: Inbox | None = self._client.socket()
        return found

    def _run(self) -> None:
        bell, rung = socket.socketpair()
        bell.setblocking(False)
        rung.setblocking(False)
        with bell, rung:
            self._bell = bell
            self._keep_connected(rung)

    def _keep_connected(self, rung: socket.socket) -> None:
        pause, lost = _FIRST_PAUSE, 0
        while not self._closing.is_set() and self._failed is None:
            started, self._stood, self._brought = time.monotonic(), False, False
            try:
                self._connect()
                self._move(rung)
            except (OSError, ValueError) as error:
                self._judge(error)
            self._standing.clear()
            if self._brought or time.monotonic() - started > 2 * _LONGEST_PAUSE:
                pause, lost = _FIRST_PAUSE, 0
            lost += self._stood
            if lost >= _DUELS and not self._closing.is_set():
                self._taken_over(f"lost {lost} connections in a row")
            if self._failed is None:
                self._closing.wait(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> None:
        properties = Properties(PacketTypes.CONNECT)
        if self.qos:
            properties.SessionExpiryInterval = SESSION_SECONDS
        self._client.connect(
            self.address.host,
            self.address.port,
            keepalive=self.keepalive,
            clean_start=not self.qos,
            properties=properties if self.qos else None,
        )

    def _move(self, rung: socket.socket) -> None:
        """Move bytes until the connection is gone."""
        client = self._client
        with selectors.DefaultSelector() as ready:
            ready.register(rung, selectors.EVENT_READ)
            while (link := self._socket()) is not None:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.want_write() else 0)
                change = ready.modify if link in ready.get_map() else ready.register
                change(link, events)
                more = link.more  # perhaps decrypted already: no event tells of it
                seen = {key.fileobj: mask for key, mask in ready.select(0 if more else self.keepalive / 4)}
                if rung in seen:
                    rung.recv(4096)
                if more or seen.get(link, 0) & selectors.EVENT_READ:
                    self._read(link)
                if seen.get(link, 0) & selectors.EVENT_WRITE:
                    client.loop_write()
                client.loop_misc()

    def _read(self, link: Inbox) -> None:
        """Take in what has come: publishes ourselves, the rest by paho."""
        messages = link.collect()
        while link.waiting and self._socket() is link:
            self._client.loop_read()
        if messages:
            self._hand_on(messages)

    def _wake(self) -> None:
        if self._bell is not None:
            with suppress(OSError):  # full: it was woken often enough; closed: nobody is left to wake
                self._bell.send(b"!")

    def _judge(self, error: Exception) -> None:
        """Waiting mends a broker that is away; it mends no certificate."""
        self._last_error = str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            self._failed = RunError(
                f"{self.address.url} is not the broker of these credentials ({error.verify_message}); check the "
                "address, or use the ca.pem that was made with this deployment"
            )
        elif isinstance(error, ssl.SSLError) and "ALERT" in str(error).upper():
            self._refused()

    def _refused(self) -> None:
        self._failed = RunError(
            f"the broker at {self.address.url} refused the certificate of {self.name!r} ({self._last_error}); use the "
            "credentials that were made with this deployment (keys/client-0 and so on)"
        )

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            self._last_error = str(reason)
            if reason.value in _HOPELESS:
                self._failed = RunError(
                    f"the broker at {self.address.url} does not let {self.name!r} in: {reason}; check the credentials "
                    "and the name"
                )
            return
        if self._subscriptions and not (self.qos and flags.session_present):
            client.subscribe(self._subscriptions)
        self._stood = True
        self._standing.set()
        self._connected()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._standing.clear()
        if reason.value == _TAKEN_OVER:
            self._taken_over(str(reason))

    def _taken_over(self, seen: str) -> None:
        """MQTT 5 brokers say so; mosquitto 2.0.11 only closes the older connection."""
        self._failed = RunError(
            f"another process seems to connect to {self.address.url} as {self.name!r} and to take its place ({seen}); "
            "stop one of them, or mend the connection"
        )

    def _on(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        """At QoS 1 paho reads the messages, and keeps their numbers."""
        fields = message.topic, bytes(message.payload), message.retain, message.qos, message.mid, message.dup
        self._hand_on([Message(*fields)])

    def _hand_on(self, messages: Sequence[Message]) -> None:
        fresh = not all(message.retain for message in messages)  # what the broker kept says nothing of the connection
        self._brought = self._brought or fresh
        self._receive(messages)

    def _on_open(self, client: Any, data: Any, link: Inbox) -> None:
        link.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a message is one write: nothing to wait for

    def _on_close(self, client: Any, data: Any, link: Inbox) -> None:
        self._past += of_socket(link.link)

    def _on_log(self, text: str) -> None:
        if "socket:" in text:  # paho tells what ended a connection here only
            self._last_error = text.partition("socket:")[2].strip()
            if "ALERT" in self._last_error.upper() and not self._standing.is_set():
                self._refused()  # in TLS 1.3 a refused certificate is heard of after the handshake


def _errors(tell: Callable[[str], None]) -> logging.Logger:
    """A logger of errors alone, each told as a text; it belongs to nobody else."""

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    logger = logging.Logger("desketch.mqtt", logging.ERROR)
    logger.addHandler(Told())
    return logger
