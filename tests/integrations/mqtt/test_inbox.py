"""The inbox under paho: publishes at QoS 0 come out whole and in order, all else is paho's, byte for byte."""

from __future__ import annotations

import socket
import struct

import pytest

from desketch.integrations.mqtt.inbox import Inbox, Message


def packet(kind, body):
    length, left = b"", len(body)
    while True:
        length += bytes([left & 127 | (128 if left > 127 else 0)])
        left >>= 7
        if not left:
            return bytes([kind]) + length + body


def publish(topic, payload, *, kind=0x30, properties=b"\0"):
    return packet(kind, struct.pack("!H", len(topic)) + topic + properties + payload)


ACK = packet(0x40, b"\0\1")
AT_QOS_1 = packet(0x32, b"\0\3d/r\0\7\0hello")
LONG = bytes(range(256)) * 80
STREAM = [
    (publish(b"d/1/r", b"one"), Message("d/1/r", b"one")),
    (ACK, None),
    (publish(b"d/2/p", b"", kind=0x31), Message("d/2/p", b"", retain=True)),
    (AT_QOS_1, None),
    (publish(b"d/3/r", LONG, properties=b"\5\2\0\0\0\x09"), Message("d/3/r", LONG)),
    (publish("d/\u00e9/r".encode(), b"x"), Message("d/\u00e9/r", b"x")),
    (packet(0xD0, b""), None),
]


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield Inbox(here), there


def rest(inbox):
    data = b""
    while inbox.waiting:
        data += inbox.recv(1)
    return data


@pytest.mark.parametrize("step", [1, 3, 1000, 1 << 20])
def test_a_stream_cut_anywhere_gives_the_same(pair, step):
    inbox, there = pair
    stream, found = b"".join(data for data, _ in STREAM), []
    for start in range(0, len(stream), step):
        there.sendall(stream[start : start + step])
        found += inbox.collect()
    assert found == [message for _, message in STREAM if message is not None]
    assert rest(inbox) == b"".join(data for data, message in STREAM if message is None)
    with pytest.raises(BlockingIOError):
        inbox.recv(1)


@pytest.mark.parametrize(
    "bad",
    [packet(0x30, b"\0\x09d/r"), packet(0x30, b"\0\3d/r"), packet(0x30, b"\0\3d/r\x09x"), packet(0x30, b"")],
    ids=["a topic that is cut", "no properties", "properties that are cut", "nothing"],
)
def test_what_is_no_publish_is_left_to_paho(pair, bad):
    inbox, there = pair
    there.sendall(bad + publish(b"d/1/r", b"one"))
    assert inbox.collect() == [Message("d/1/r", b"one")]
    assert rest(inbox) == bad


def test_a_length_without_an_end_is_left_to_paho(pair):
    inbox, there = pair
    there.sendall(b"\x30\xff\xff\xff\xff\xff")
    assert inbox.collect() == []
    assert rest(inbox).startswith(b"\x30\xff\xff\xff\xff")


def test_the_end_comes_after_what_came_before_it(pair):
    inbox, there = pair
    there.sendall(ACK + publish(b"d/1/r", b"last"))
    there.close()
    assert inbox.collect() == [Message("d/1/r", b"last")]
    assert inbox.recv(100) == ACK
    assert inbox.waiting
    assert inbox.recv(100) == b""


def test_an_error_of_the_connection_is_raised_to_paho(pair):
    inbox, _ = pair
    inbox.link.close()
    assert inbox.collect() == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        inbox.recv(1)


def test_much_at_once_is_read_in_turns(pair):
    inbox, there = pair
    there.setblocking(False)
    sent, one = 0, publish(b"d/1/r", bytes(1000))
    stream = one * 3000
    found = []
    while len(found) < 3000:
        if sent < len(stream):
            sent += there.send(stream[sent : sent + 100_000])
        found += inbox.collect()
    assert found == [Message("d/1/r", bytes(1000))] * 3000
