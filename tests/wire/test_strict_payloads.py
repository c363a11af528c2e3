"""Payloads have one encoding and integers their full range: what no sender writes, no receiver reads."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from desketch.errors import WireError
from desketch.keys import Key
from desketch.wire import Header, decode, encode, encode_batch, pack


def header(codec, b):
    return Header(run=1, round=5, family="srht", d=10_000, b=b, key=Key(3), codec=codec)


def keys(n):
    return [Key(1).fold_in("rounding", i) for i in range(n)]


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_every_block_has_a_scale_of_its_own(codec):
    x = np.linspace(-1, 1, 600, dtype=np.float32)
    x[:256] *= 1e-4
    levels = {"int8": 127, "int4": 7}[codec]
    _, back = decode(encode(x, header(codec, 600), rounding=Key(1)), header(codec, 600))
    for block in (slice(0, 256), slice(256, 512), slice(512, 600)):
        assert np.abs(back - x)[block].max() <= 1.01 * np.abs(x[block]).max() / levels


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_the_largest_number_of_a_block_is_unbiased_too(codec):
    """A scale below max|v| / L would cut it off; bfloat16 keeps eight bits, so these fall between its numbers."""
    levels, rows = {"int8": 127, "int4": 7}[codec], 200
    for value in (1.003, 1.0055, 1.0071):
        x = np.full((rows, 256), value, dtype=np.float32)
        frames = encode_batch(x, header(codec, 256), rounding=keys(rows))
        mean = np.mean([decode(frame, header(codec, 256))[1] for frame in frames], dtype=np.float64)
        assert abs(mean - value) < 4.5 * 0.5 * value / levels / np.sqrt(x.size)


@pytest.mark.parametrize(
    ("codec", "b", "payload", "field"),
    [
        ("int8", 2, struct.pack("<H", 0x3F80) + b"\x80\x00", "payload"),  # -128
        ("int4", 2, struct.pack("<H", 0x3F80) + b"\x08", "payload"),  # -8
        ("int4", 1, struct.pack("<H", 0x3F80) + b"\x11", "payload"),  # a second nibble of one number
        ("int8", 1, struct.pack("<H", 0xBF80) + b"\x01", "scale"),  # a negative scale
        ("sign1", 12, struct.pack("<f", 1.0) + b"\x00\x10", "payload"),  # a thirteenth bit
        ("sign1", 8, struct.pack("<f", -1.0) + b"\x00", "scale"),
    ],
)
def test_a_payload_that_no_sender_writes_is_refused(codec, b, payload, field):
    with pytest.raises(WireError, match=f"^{field}"):
        decode(pack(header(codec, b), payload), header(codec, b))


def test_a_varint_longer_than_it_need_be_is_refused():
    frame = pack(header("f32", 1), bytes(4))
    assert frame[11] == 5  # the round
    body = frame[:11] + b"\x85\x00" + frame[12:-4]
    with pytest.raises(WireError, match="round: the varint is not the shortest"):
        decode(body + struct.pack("<I", zlib.crc32(body)), header("f32", 1))


def test_an_update_and_a_broadcast_of_equal_salt_are_rotated_apart():
    x = np.linspace(-1, 1, 256, dtype=np.float32)
    up = header("sign1", 256)
    down = replace(up, kind="broadcast")
    errors = [decode(encode(x, one, rounding=Key(1)), one)[1] - x for one in (up, down)]
    cosine = np.dot(*errors) / np.prod([np.linalg.norm(error) for error in errors])
    assert abs(cosine) < 0.35  # five standard deviations
