"""Short frames: four bytes around the payload, one encoding, and every disagreement noticed."""

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


def test_eight_bytes_beside_the_signs():
    frame = message(agreed=1.0)
    assert len(frame) == 106 + 8 == frame_size(HEADER, agreed=1.0)
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
    with pytest.raises(WireError, match="check:"):
        open_short(shorten(HEADER, payload), replace(HEADER, **{field: OTHERS[field]}))
    with pytest.raises(WireError, match="check:"):
        open_short(shorten(HEADER, payload), HEADER, agreed=2.0)


def test_there_is_one_encoding():
    payload = b"\x01" * 10
    explicit = shorten(replace(HEADER, weight=3.0), payload, agreed=1.0)
    with pytest.raises(WireError, match="weight: got 3, which is agreed"):
        open_short(explicit, HEADER, agreed=3.0)
    for flag in (0x51, 0x52, 0x53, 0x40, 0x60, 0xDE):
        with pytest.raises(WireError, match="flag:"):
            open_short(bytes([flag]) + shorten(HEADER, payload)[1:], HEADER)
    with pytest.raises(WireError, match="round: got one that ends in 45, expected 300, 44"):
        open_short(b"\x50\x2d" + shorten(HEADER, payload)[2:], HEADER)


def test_an_agreed_weight_is_not_sent_whatever_its_float32_is():
    payload = bytes(11)
    header = replace(HEADER, codec="int8", weight=0.1)  # 0.1 is no float32
    frame = shorten(header, payload, agreed=0.1)
    assert len(frame) == 4 + len(payload) == short_size(header, len(payload), agreed=0.1)
    assert open_short(frame, header, agreed=0.1)[0].weight == header.weight


def test_large_payloads_have_the_crc_32_of_their_full_frame():
    header = replace(HEADER, codec="opaque")
    for size, check in ((WIDE_FROM - 1, 2), (WIDE_FROM, 4)):
        payload = bytes(range(256)) * (size // 256 + 1)
        frame = shorten(header, payload[:size])
        assert len(frame) == 2 + check + size
        full = lengthen(frame, header)
        assert bytes(unpack(full, header)[1]) == payload[:size]
        if check == 4:
            assert frame[2:6] == full[-4:]
            with pytest.raises(WireError, match="flag: a payload of"):
                open_short(b"\x50" + frame[1:], header)
