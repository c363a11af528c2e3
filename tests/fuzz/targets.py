"""What is fuzzed: each target takes bytes of anybody's making, and only a `DesketchError` may leave it.

A target also states what must hold for bytes that are accepted: one encoding per message, finite numbers, memory within
a small multiple of the bytes at hand.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from desketch.errors import DesketchError, WireError
from desketch.keys import Key
from desketch.session.protocol import Order, Reply, State
from desketch.session.short import ShortOrder, ShortReply, pack_order, pack_reply
from desketch.wire import (
    CODECS,
    FAMILY_CODES,
    KINDS,
    Header,
    decode,
    decode_batch,
    encode,
    open_short,
    pack,
    peek,
    shorten,
    split,
    unpack,
)
from desketch.wire.codecs import CODEC_TABLE, Rotated, payload_size

KEY = Key(2023).fold_in("round", 7)
HEADER = Header(run=0x01020304, round=7, family="srht", d=51_000, b=11, key=KEY, codec="f32", weight=72.0)
CODEC_NAMES = tuple(CODEC_TABLE)
_MOST = 4096  # numbers in a fuzzed message


def frame(data: bytes) -> None:
    """A frame against an expectation made of its own fields: whatever is accepted packs to the same bytes."""
    fields = peek(data)
    header = Header(
        run=fields.run,
        round=fields.round,
        family=fields.family,
        d=fields.d,
        b=fields.b,
        key=KEY,
        codec=fields.codec,
        kind=fields.kind,
        weight=fields.weight,
    )
    got, payload = unpack(data, header)
    assert pack(got, bytes(payload)) == data
    if fields.codec in CODEC_TABLE and fields.b <= _MOST:
        values = decode(data, header)[1]
        assert values.shape == (fields.b,)
        assert np.isfinite(values).all()


def sealed(data: bytes) -> None:
    """The same, with header and payload of the fuzzer's choice and a right checksum: deeper than luck gets."""
    if len(data) < 8:
        return
    codec, family, kind = (sorted(table)[data[i] % len(table)] for i, table in enumerate((CODECS, FAMILY_CODES, KINDS)))
    b = 1 + int.from_bytes(data[3:5], "little") % _MOST
    weight = float(np.frombuffer(data[5:8] + b"\x3f", "<f4")[0])
    header = Header(run=1, round=b, family=family, d=b + data[3], b=b, key=KEY, codec=codec, kind=kind, weight=weight)
    frame(pack(header, data[8:]))


def payload(data: bytes) -> None:
    """A payload of exactly the right size: decoded to finite numbers, or refused by field; the batch goes on."""
    if len(data) < 3:
        return
    codec, b = CODEC_TABLE[CODEC_NAMES[data[0] % len(CODEC_NAMES)]], 1 + int.from_bytes(data[1:3], "little") % 512
    header = replace(HEADER, codec=codec.name, b=b)
    size = codec.size(b)
    body = (data[3:] * (size // max(1, len(data) - 3) + 1)).ljust(size, b"\0")[:size]
    batch = decode_batch({0: pack(header, body), 1: data}, header)
    assert 1 in batch.refused
    assert np.isfinite(batch.values).all()
    assert all(reason.startswith(("scale: ", "payload")) for c, reason in batch.refused.items() if c == 0)


def values(data: bytes) -> None:
    """Any float32 numbers: decode(encode(x)) has the right shape and is finite, f32 gives x back, or x is refused."""
    if len(data) < 5:
        return
    name = CODEC_NAMES[data[0] % len(CODEC_NAMES)]
    x = np.frombuffer(data[1 : 1 + (len(data) - 1) // 4 * 4], "<f4")[:_MOST]
    header = replace(HEADER, codec=name, b=len(x))
    coded = encode(x, header, rounding=KEY.fold_in(data[0]))
    try:
        back = decode(coded, header)[1]
    except WireError as error:
        rotated = isinstance(CODEC_TABLE[name], Rotated)  # such numbers, rotated back, may leave float32
        if not rotated or not str(error).startswith("scale: "):
            raise AssertionError("an encoder's frame is refused by its decoder") from error
        return
    assert back.shape == x.shape
    assert np.isfinite(back).all()
    if name == "f32":
        assert back.tobytes() == x.tobytes()


def frames(data: bytes) -> None:
    """A catch-up: frames one after another come apart into pieces that make up the whole."""
    pieces = list(split(data))
    assert b"".join(pieces) == data


def order(data: bytes) -> None:
    """What a client reads."""
    got = Order.unpack(data)
    assert got.pack() == data


def reply(data: bytes) -> None:
    """What a server reads."""
    got = Reply.unpack(data)
    again = Reply.unpack(got.pack())
    assert again == got or got.seconds != got.seconds


AGREED = Header(run=0x01020304, round=7, family="srht", d=51_000, b=40, key=Key(5), codec="trellis1")
FACTS = {"run": 0x01020304, "d": 51_000, "t": 8, "digest": bytes(range(16))}


def short(data: bytes) -> None:
    """A frame inside a session: what is accepted has one encoding."""
    for agreed in (AGREED, replace(AGREED, codec="opaque")):  # a payload of known length, and one of any
        try:
            header, body = open_short(data, agreed)
        except WireError as error:
            refusal = error
        else:
            assert shorten(header, bytes(body)) == data
            return
    raise refusal


def short_order(data: bytes) -> None:
    """What a client reads in an ordinary round."""
    assert pack_order(ShortOrder.unpack(data).full(**FACTS)) == data


def short_reply(data: bytes) -> None:
    """What a server reads in an ordinary round."""
    got = ShortReply.unpack(data)
    assert got.state is State.STRANGER or pack_reply(got.full(**FACTS, client=3)) == data


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (frame, sealed, payload, values, frames, order, reply, short, short_order, short_reply)
}


def attempt(name: str, data: bytes) -> bool:
    """Run one target, then once more with right checksums; whether any was accepted.

    Anything but a `DesketchError` goes through.
    """
    accepted = False
    for message in dict.fromkeys((data, resealed(data))):
        try:
            TARGETS[name](message)
            accepted = True
        except DesketchError:
            pass
    return accepted


def resealed(data: bytes) -> bytes:
    """The same frames with right checksums, which a fuzzer does not guess."""
    out, at = bytearray(data), 0
    try:
        while at < len(out):
            end = at + peek(memoryview(data)[at:]).size
            if end > len(out):
                break
            out[end - 4 : end] = struct.pack("<I", zlib.crc32(out[at : end - 4]))
            at = end
    except WireError:
        pass
    return bytes(out)


def seeds() -> dict[str, list[bytes]]:
    """The corpus as the vectors of the specification make it, for ``make_corpus.py`` to write."""
    import json
    from pathlib import Path

    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "wire.json").read_text())
    coded = [bytes.fromhex(vector["frame"]) for vector in vectors]
    bodies = [bytes(fields_payload(one)) for one in coded]
    digest = bytes(range(16))
    envelope = {"run": 0x01020304, "d": 51_000, "t": 8}
    orders = [
        Order(**envelope, since=6, upto=7, digest=digest, broadcasts=((7, coded[0]),)),
        Order(**envelope, since=0, upto=7, digest=digest, train=False, agreement=b"{}", checkpoint=b"checkpoint"),
    ]
    replies = [
        Reply(**envelope, state=state, client=3, version=7, digest=digest, seconds=0.5, frame=last, reason=reason)
        for state, last, reason in zip(
            range(5), (coded[8], None, None, None, None), ("",) * 4 + ("broke",), strict=True
        )
    ]
    return {
        "frame": coded,
        "sealed": [bytes([i, i, i, 10, 0, 0, 0, 0x80]) + body for i, body in enumerate(bodies)],
        "payload": [bytes([i // 2, 10, 0]) + body for i, body in enumerate(bodies[:10])],
        "values": [bytes([i]) + np.float32([0.5, -1.25, 3e38, 1e-40, 0.0]).tobytes() for i in range(len(CODEC_NAMES))],
        "frames": [coded[0] + coded[-1], b"".join(coded)],
        "order": [one.pack() for one in orders],
        "reply": [one.pack() for one in replies],
        "short": [
            *(shorten(replace(AGREED, weight=w, codec="opaque"), b"payload" * n) for w, n in ((1.0, 1), (3.0, 700))),
            *(shorten(replace(AGREED, weight=weight), bytes(payload_size(AGREED) or 0)) for weight in (1.0, 3.0)),
        ],
        "short_order": [pack_order(orders[0]) or b""],
        "short_reply": [pack_reply(one) or b"\x73\x08" for one in replies[:3]],
    }


def fields_payload(one: bytes) -> bytes:
    """The payload of a good frame."""
    fields = peek(one)
    return one[fields.start : fields.start + fields.length]
