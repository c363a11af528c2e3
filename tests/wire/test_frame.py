"""Frames: every bit is guarded, every field is named, every frame has one encoding, random bytes never pass."""

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import desketch
from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire import (
    CODECS,
    FAMILY_CODES,
    KINDS,
    Header,
    decode,
    encode,
    frame_size,
    pack,
    peek,
    run_id,
    split,
    unpack,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "wire.json").read_text())
HEADERS = st.builds(
    lambda b, extra, **rest: Header(b=b, d=b + extra, **rest),
    b=st.integers(1, 2**40),
    extra=st.integers(0, 2**40),
    run=st.integers(0, 2**32 - 1),
    round=st.integers(0, 2**48 - 1),
    family=st.sampled_from(sorted(FAMILY_CODES)),
    key=st.builds(Key, st.integers()),
    codec=st.sampled_from(sorted(CODECS)),
    kind=st.sampled_from(sorted(KINDS)),
    weight=st.floats(2.0**-149, 2.0**127, width=32),
)


def resealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@given(header=HEADERS, payload=st.binary(max_size=300))
def test_pack_and_unpack_are_inverse(header, payload):
    frame = pack(header, payload)
    got, view = unpack(frame, replace(header, weight=1.0))
    assert got == header
    assert bytes(view) == payload
    assert peek(frame).size == len(frame)


@settings(max_examples=500)
@given(data=st.binary(max_size=80), seal=st.booleans(), real=st.booleans())
def test_arbitrary_bytes_raise_wire_errors_only(data, seal, real):
    expect = Header(run=0, round=0, family="none", d=1, b=1, key=Key(0), codec="f32")
    data = bytes([0xDE, 0x20]) + data if real else data
    with pytest.raises(WireError):
        decode(resealed(data) if seal else data, expect)


@given(header=HEADERS, payload=st.binary(max_size=40), data=st.data())
def test_a_resealed_change_is_refused_or_is_another_valid_frame(header, payload, data):
    """One encoding per frame: whatever parses packs to the same bytes, or differs in a field the receiver checks."""
    body = bytearray(pack(header, payload)[:-4])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    frame = resealed(bytes(body))
    try:
        got, view = unpack(frame, header)
    except WireError:
        return
    assert pack(got, bytes(view)) == frame


def test_every_bit_flip_and_every_truncation_is_refused(make_header):
    header = make_header(codec="sign1", b=120)
    frame = encode(np.linspace(-1, 1, 120), header, rounding=Key(3))
    for bit in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError, match=r"^[a-z0-9 ]+: "):
            decode(bytes(broken), header)
    for size in range(len(frame)):
        with pytest.raises(WireError, match=r"^[a-z0-9 ]+: "):
            decode(frame[:size], header)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("run", 5),
        ("round", 4),
        ("kind", "broadcast"),
        ("codec", "f16"),
        ("family", "ams"),
        ("d", 51_001),
        ("b", 701),
        ("key", Key(2)),
    ],
)
def test_a_frame_of_another_context_is_refused_by_field(make_header, field, other):
    header = make_header()
    frame = encode(np.zeros(header.b), header)
    with pytest.raises(WireError, match=f"^{field}: "):
        decode(frame, replace(header, **{field: other}))


def test_wrong_sizes_are_named(make_header):
    header = make_header()
    frame = encode(np.zeros(header.b), header)
    with pytest.raises(WireError, match="payload length: oversized"):
        decode(frame + b"\0", header)
    with pytest.raises(WireError, match="payload length: truncated"):
        decode(frame[:-1], header)
    with pytest.raises(WireError, match="payload length: got 3 bytes, f32 of b=700 takes 2800"):
        decode(pack(header, b"abc"), header)
    with pytest.raises(WireError, match=r"^magic"):
        decode(b"\0" + frame[1:], header)
    with pytest.raises(WireError, match=r"^version"):
        decode(frame[:1] + b"\x10" + frame[2:], header)
    huge = resealed(bytes.fromhex("de2420") + bytes(8) + b"\x00\x02\x01\x40" + b"\xff\xff\xff\xff\xff\xff\x3f")
    with pytest.raises(WireError, match="payload length: truncated, the header announces 2"):
        decode(huge, header)


@pytest.mark.parametrize(
    ("weight", "message"),
    [(b"\x40\x00", "weight"), (b"\x7f\x80", "weight"), (b"\xbf\x80", "weight"), (b"\x7f\xc0", "weight")],
)
def test_bad_weights_are_named(make_header, weight, message):
    frame = pack(make_header(d=100, b=100, weight=1.0), bytes(400))
    body = frame[:-4].replace(b"\x3f\x80", weight)
    assert len(body) == len(frame) - 4
    with pytest.raises(WireError, match=f"^{message}"):
        decode(resealed(body), make_header(d=100, b=100))


def test_the_header_stays_small(make_header):
    small = make_header(codec="sign1", d=407_050, b=1696, weight=72.0, round=60)
    assert frame_size(small) == 4 + 212 + 25
    assert frame_size(replace(small, d=1_628_170, b=5120, round=300, weight=6000.0)) == 4 + 640 + 27


def test_frames_concatenate(make_header):
    frames = [pack(make_header(round=t, codec="opaque"), bytes(t)) for t in range(5)]
    assert [bytes(part) for part in split(b"".join(frames))] == frames
    with pytest.raises(WireError, match="truncated"):
        list(split(b"".join(frames)[:-1]))


@pytest.mark.parametrize(
    "fields",
    [
        {"family": "haar"},
        {"codec": "int2"},
        {"kind": "gossip"},
        {"run": -1},
        {"round": -1},
        {"b": 0},
        {"b": 9, "d": 8},
        {"weight": 0.0},
        {"weight": float("nan")},
        {"weight": -1.0},
        {"weight": 1e39},
        {"weight": 1e-60},
    ],
)
def test_headers_are_checked(make_header, fields):
    with pytest.raises(InputError):
        make_header(**fields)


def test_every_family_has_a_code_and_run_ids_differ():
    assert set(desketch.FAMILIES) < set(FAMILY_CODES)
    assert run_id("a") != run_id("b")
    assert run_id("a") == run_id(b"a")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['header']['codec']}-{v['header']['family']}")
def test_vectors_of_the_spec(vector):
    header = Header(**vector["header"] | {"key": Key.from_bits(bytes.fromhex(vector["header"]["key"]))})
    frame = bytes.fromhex(vector["frame"])
    if "payload" in vector:
        assert pack(header, bytes.fromhex(vector["payload"])) == frame
        return
    assert encode(vector["values"], header, rounding=Key.from_bits(bytes.fromhex(vector["rounding"]))) == frame
    np.testing.assert_array_equal(decode(frame, header)[1], np.float32(vector["decoded"]))
