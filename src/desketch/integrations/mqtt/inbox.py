"""Inbox: the socket under paho, which reads all that has come at once and takes the publishes at QoS 0 out of it.

paho reads a packet byte by byte and makes five objects of it; a server of ten thousand clients has ten thousand of them
in a round.  A publish at QoS 0 is a topic and a payload, and asks for nothing.  All other packets are paho's: it finds
them in `Inbox.recv` as if nothing had stood between them.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, NamedTuple

from paho.mqtt import client as paho

__all__ = ["Inbox", "Message", "PahoClient"]

_PUBLISH, _RETAINED = 0x30, 0x31
_READ, _AT_ONCE = 1 << 16, 1 << 20  # bytes asked of the system, and read before they are looked at


class Message(NamedTuple):
    """A publish; at QoS 1 ``mid`` is what its acknowledgement names."""

    topic: str
    payload: bytes
    retain: bool = False
    qos: int = 0
    mid: int = 0
    dup: bool = False


class Inbox:
    """A connected socket whose `collect` brings publishes at QoS 0, and whose `recv` brings the rest."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._came, self._rest = bytearray(), bytearray()
        self._end: OSError | None = None  # what ended the connection; an empty one is its orderly end
        self.more = False  # whether there was more to read than was read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    @property
    def waiting(self) -> bool:
        """Whether `recv` has something to say."""
        return bool(self._rest) or self._end is not None

    def recv(self, size: int) -> bytes:
        """Bytes of packets that are not publishes at QoS 0."""
        if self._rest:
            data = bytes(self._rest[:size])
            del self._rest[:size]
            return data
        if self._end is None:
            raise BlockingIOError
        if self._end.args:
            raise self._end
        return b""

    def collect(self) -> list[Message]:
        """Read what has come; the publishes at QoS 0 that are whole, in their order."""
        self._read()
        found: list[Message] = []
        at, came = 0, self._came
        while (end := _whole(came, at)) is not None:
            start, stop = end
            message = _publish(came[start:stop], came[at] == _RETAINED) if came[at] in (_PUBLISH, _RETAINED) else None
            if message is None:
                self._rest += came[at:stop]
            else:
                found.append(message)
            at = stop
        del came[:at]
        return found

    def _read(self) -> None:
        self.more, upto = False, len(self._came) + _AT_ONCE
        try:
            while data := self.link.recv(_READ):
                self._came += data
                if len(self._came) >= upto:
                    self.more = True
                    return
            self._end = OSError()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._end = error


class PahoClient(paho.Client):  # type: ignore[misc]
    """paho, over an inbox."""

    def _create_socket(self) -> Any:
        return Inbox(super()._create_socket())


def _whole(data: bytearray, at: int) -> tuple[int, int] | None:
    """Where the packet at ``at`` has its body, if all of it is there."""
    length, shift, start = 0, 0, at + 1
    while start < len(data):
        byte = data[start]
        length, shift, start = length | (byte & 127) << shift, shift + 7, start + 1
        if byte < 128:
            return (start, start + length) if start + length <= len(data) else None
        if shift == 28:  # paho refuses it at the next byte
            return start, start
    return None


def _publish(body: bytearray, retain: bool) -> Message | None:
    """Topic, properties (none of them concerns us), payload; None if it is not that: paho says what is wrong."""
    topic = 2 + int.from_bytes(body[:2], "big")
    properties, shift, at = 0, 0, topic
    while at < len(body):
        byte = body[at]
        properties, shift, at = properties | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            break
    if not topic < at or at + properties > len(body):
        return None
    return Message(body[2:topic].decode("utf-8", "replace"), bytes(body[at + properties :]), retain)
