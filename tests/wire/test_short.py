"""Short frames: two bytes around the payload, one encoding, and every disagreement noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from desketch.errors import WireError
from desketch.keys import Key
from desketch.wire import Header, decode, encode, frame_size, lengthen, open_short, shorten, unpack
from desketch.wire.short import WIDE_FROM, short_size

HEADER = Header(run=7, round=300, family="srht", d=1000, b=848, key=Key(1), codec="sign1")


def message(header=HEADER, **options):
    values = np.random.default_rng(0).standard_normal(header.b).astype(np.float32)
    return encode(values, header, rounding=Key(2), **options)


@pytest.mark.parametrize(("codec", "beside"), [("sign1", 6), ("trellis1", 4)])
def test_a_few_bytes_beside_the_bits(codec, beside):
    frame = message(replace(HEADER, codec=codec), agreed=1.0)
    assert len(frame) == 106 + beside == frame_size(replace(HEADER, codec=codec), agreed=1.0)


def test_a_short_frame_holds_the_numbers_of_a_full_one():
    frame = message(agreed=1.0)
    assert np.array_equal(decode(frame, HEADER, agreed=1.0)[1], decode(message(), HEADER)[1])


def test_it_says_what_the_full_frame_says():
    header = replace(HEADER, weight=350.0)
    assert lengthen(message(header, agreed=1.0), HEADER) == message(header)
    assert lengthen(message(header, agreed=350.0), HEADER, agreed=350.0) == message(header)
    assert len(message(header, agreed=1.0)) == len(message(header, agreed=350.0)) + 2


def test_every_flipped_bit_and_every_cut_is_noticed():
    for frame in (message(agreed=1.0), message(replace(HEADER, weight=350.0), agreed=1.0)):
        for place in range(8 * len(frame)):
            bad = bytearray(frame)
            bad[place // 8] ^= 1 << place % 8
            with pytest.raises(WireError):
                decode(bytes(bad), HEADER, agreed=1.0)
        for end in range(len(frame)):
            with pytest.raises(WireError):
                decode(frame[:end], HEADER, agreed=1.0)


OTHERS = {
    "run": 8,
    "round": 300 + 256,
    "family": "ams",
    "d": 1001,
    "b": 847,
    "key": Key(3),
    "codec": "int8",
    "kind": "broadcast",
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_fact_that_is_not_sent_is_checked(field):
    payload = bytes(open_short(message(agreed=1.0), HEADER)[1])
    with pytest.raises(WireError, match="payload length:" if field == "codec" else "check:"):
        open_short(shorten(HEADER, payload), replace(HEADER, **{field: OTHERS[field]}))
    with pytest.raises(WireError, match="check:"):
        open_short(shorten(HEADER, payload), HEADER, agreed=2.0)


def test_there_is_one_encoding():
    payload = b"\x01" * 110
    explicit = shorten(replace(HEADER, weight=3.0), payload, agreed=1.0)
    with pytest.raises(WireError, match="weight: got 3, which is agreed"):
        open_short(explicit, HEADER, agreed=3.0)
    assert open_short(explicit, HEADER)[0].weight == 3
    with pytest.raises(WireError, match="payload length: got 115 bytes, expected 110 and a weight of 0 to 4"):
        open_short(shorten(HEADER, payload + bytes(5)), HEADER)
    with pytest.raises(WireError, match="frame length: truncated, 1 bytes do not hold a check of 2"):
        open_short(b"\x01", HEADER)


@pytest.mark.parametrize("weight", [1.0, 3.0, 350.0, 0.1])
@pytest.mark.parametrize("size", [0, 3, 4091, 4094, 4095, 4096, 4097])
def test_an_opaque_payload_says_its_weight_by_the_check(weight, size):
    header, payload = replace(HEADER, codec="opaque", weight=weight), bytes(i % 251 for i in range(size))
    got, found = open_short(shorten(header, payload, agreed=1.0), header, agreed=1.0)
    assert (got.weight, bytes(found)) == (header.weight, payload)


def test_an_agreed_weight_is_not_sent_whatever_its_float32_is():
    payload = bytes(848 + 8)
    header = replace(HEADER, codec="int8", weight=0.1)  # 0.1 is no float32
    frame = shorten(header, payload, agreed=0.1)
    assert len(frame) == 2 + len(payload) == short_size(header, len(payload), agreed=0.1)
    assert open_short(frame, header, agreed=0.1)[0].weight == header.weight


def test_large_payloads_have_the_crc_32_of_their_full_frame():
    header = replace(HEADER, codec="opaque")
    for size, check in ((WIDE_FROM - 1, 2), (WIDE_FROM, 4)):
        payload = bytes(range(256)) * (size // 256 + 1)
        frame = shorten(header, payload[:size])
        assert len(frame) == check + size
        full = lengthen(frame, header)
        assert bytes(unpack(full, header)[1]) == payload[:size]
        if check == 4:
            assert frame[:4] == full[-4:]
            with pytest.raises(WireError, match=r"frame length|check:"):
                open_short(frame[:-1], header)
