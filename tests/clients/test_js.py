"""The client in another language: held to the vectors of the specification and to Python's answers."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from desketch.core.flat import FlatModel
from desketch.errors import WireError
from desketch.fed.local import ClientData, LocalWork, local_update
from desketch.keys import Key
from desketch.sketches import draw
from desketch.tasks.data import load_task
from desketch.tasks.models import build_model
from desketch.wire import CODEC_TABLE, FAMILY_CODES, KINDS, Header, decode, decode_extra, encode, shorten, unpack
from desketch.wire.short import WIDE_FROM

CLIENT = Path(__file__).parents[2] / "clients" / "js"
PAYLOAD_TAIL = 4  # bytes of the checksum


def test_the_client_is_held_to_the_vectors_by_its_own_tests(node):
    tests = sorted(CLIENT.glob("test/*.test.mjs"))
    done = subprocess.run([node, "--test", *tests], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout


def test_the_committed_bundle_is_what_the_sources_build(node, tmp_path):
    if not (CLIENT / "node_modules").is_dir():
        pytest.skip("clients/js/node_modules is missing: run make js to build the client")
    copy, page = tmp_path / "clients" / "js", Path("src/desketch/integrations/mqtt/page.html")
    (tmp_path / page).parent.mkdir(parents=True)
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "*.mjs"))
    shutil.copy(CLIENT / "build.mjs", copy)
    os.symlink(CLIENT / "node_modules", copy / "node_modules")
    subprocess.run([node, "build.mjs"], cwd=copy, check=True, capture_output=True, timeout=120)
    assert (copy / "desketch.mjs").read_text() == (CLIENT / "desketch.mjs").read_text(), "run make js and commit"
    assert (tmp_path / page).read_text() == (CLIENT.parents[1] / page).read_text(), "run make js and commit"


def test_the_lockfile_names_no_registry():
    lock = (CLIENT / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "://" not in lock.replace("https://opencollective.com", "")


def as_json(header: Header) -> dict[str, object]:
    fields = {
        name: getattr(header, name) for name in ("run", "round", "family", "d", "b", "codec", "kind", "tiny", "extra")
    }
    return fields | {"key": header.key.bits.hex()}


SCALES = [b"\x80\x7f", b"\x00\x80", b"\xff\x7f", b"\x7f\x7e", b"\x00\x7c", b"\x88\x88"]


def spoil(frame: bytes, rng: np.random.Generator) -> bytes:
    """One thing a broken or hostile sender could do to a frame, the checksum made right again (or not)."""
    body = bytearray(frame[:-PAYLOAD_TAIL])
    match rng.integers(9):
        case 0 | 1 | 2 | 3 as way:
            return damage(frame, rng, way)
        case 4:  # the header
            at = int(rng.integers(min(26, len(body))))
            body[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1 << int(rng.integers(8))])
        case 5:  # the payload, beginning with its scales
            at = int(rng.integers(len(body) - 1))
            body[at : at + 2] = rng.choice(SCALES)
        case 6:
            at = int(rng.integers(18, max(19, len(body))))
            body[at:] = rng.bytes(len(body) - at)
        case 7:
            body[-1] ^= 1 << int(rng.integers(8))
        case 8:
            body[-2:] = rng.choice(SCALES)
    return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))


def damage(frame: bytes, rng: np.random.Generator, way: int) -> bytes:
    """What a bad line does."""
    at = int(rng.integers(len(frame)))
    if way == 0:
        return rng.bytes(int(rng.integers(60)))
    if way == 1:
        return frame[:at]
    return frame + rng.bytes(1) if way == 2 else frame[:at] + bytes([frame[at] ^ 1 << at % 8]) + frame[at + 1 :]


def spoil_short(header: Header, payload: bytes, agreed: float, rng: np.random.Generator) -> bytes:
    """The same for a short frame: what is put in its place is under a check that holds, where there can be one."""
    body, way = bytearray(payload), int(rng.integers(10))
    if way < 4:
        return damage(shorten(header, payload, agreed=agreed), rng, way)
    if way < 8:
        at = int(rng.integers(max(1, len(body) - 1)))
        if way == 4:
            body[at : at + 2] = rng.choice(SCALES)[: len(body) - at]
        elif way == 5:
            body[at:] = rng.bytes(len(body) - at)
        elif way == 6:
            body[-1] ^= 1 << int(rng.integers(8))
        else:  # an extra number, if there is one
            body[-2:] = rng.choice(SCALES)
        return shorten(header, bytes(body), agreed=agreed)
    sent, at = shorten(header, payload, agreed=agreed), 4 if len(payload) >= WIDE_FROM else 2
    if way == 8:
        return bytes([sent[0] ^ 1 << int(rng.integers(8))]) + sent[1:]
    # a weight that need not be sent, is not in its shortest form, or is none
    weights = [struct.pack(">f", header.weight), struct.pack(">f", agreed), b"\x80\x80", b"\x00", b"\xbf"]
    return sent[:at] + weights[rng.integers(5)] + payload


def question(rng: np.random.Generator, *, short: bool) -> tuple[Header, bytes, float | None]:
    b = int(rng.choice([1, 2, 3, 7, 8, 11, 64, 84, 255, 256, 257, 300]))
    if rng.random() < 0.02:
        b = int(rng.choice([1022, 1023, 1024]))  # f32: about 4096 bytes
    header = Header(
        run=int(rng.integers(2**32)),
        round=int(2 ** rng.uniform(0, 47)),
        family=str(rng.choice(list(FAMILY_CODES))),
        d=9 + b + int(2 ** rng.uniform(0, 47)),
        b=b,
        key=Key(int(rng.integers(2**31))),
        codec=str(rng.choice(list(CODEC_TABLE))),
        kind=str(rng.choice(list(KINDS))),
        weight=float(rng.choice([1.0, 72.0, 0.1, 1e-42, 3.4e38])),
        tiny=int(rng.choice([0, 0, 1, 2])),
        extra=int(rng.choice([0, 0, 1, 3])),
    )
    values = np.clip(rng.standard_normal(b) * 10.0 ** rng.uniform(-44, 38), -1e38, 1e38).astype(np.float32)
    if rng.random() < 0.1:
        values[:] = 0
    beside = header.tiny + header.extra
    extra = rng.standard_normal(beside) * 10.0 ** rng.uniform(-9, 6, beside)
    frame = encode(values, header, rounding=header.key.fold_in("rounding"), extra=extra)
    agreed = float(rng.choice([1.0, 72.0, 0.1])) if short else None
    spoilt = rng.random() < 0.8
    if agreed is not None:
        payload = bytes(unpack(frame, header)[1])
        frame = spoil_short(header, payload, agreed, rng) if spoilt else shorten(header, payload, agreed=agreed)
    elif spoilt:
        frame = spoil(frame, rng)
    if rng.random() < 0.1:
        header = other_than(header, rng)
    return header, frame, agreed


def other_than(header: Header, rng: np.random.Generator) -> Header:
    """What a receiver of another mind expects."""
    other = {
        "run": 5,
        "round": 6,
        "kind": "peer",
        "codec": "f32",
        "family": "none",
        "d": 10**6,
        "b": 9,
        "key": Key(7),
        "tiny": 3,
        "extra": 2,
    }
    field = str(rng.choice(list(other)))
    return Header(**{name: getattr(header, name) for name in Header.__slots__} | {field: other[field]})


def answer(header: Header, frame: bytes, agreed: float | None) -> dict[str, object]:
    try:
        got, values = decode(frame, header, agreed=agreed)
        extra = decode_extra(frame, header, agreed=agreed)
    except WireError as error:
        return {"refused": str(error).split(":")[0]}
    return {
        "weight": np.float32(got.weight).tobytes().hex(),
        "values": (values + np.float32(0)).tobytes().hex(),  # the sign of a zero is not specified
        "extra": (extra + np.float32(0)).tobytes().hex(),
    }


def differ(ask, seed: int, n: int, *, short: bool, reasons: int) -> None:
    rng = np.random.default_rng(seed)
    cases = [question(rng, short=short) for _ in range(n)]
    questions = [{"header": as_json(header), "frame": frame.hex(), "agreed": agreed} for header, frame, agreed in cases]
    got = ask([{"ask": "decode", **question} for question in questions])
    wrong = [(case, theirs, ours) for case, theirs in zip(cases, got, strict=True) if theirs != (ours := answer(*case))]
    assert not wrong, f"{len(wrong)} of {n}, the first: {wrong[0]}"
    refused = [theirs["refused"] for theirs in got if "refused" in theirs]
    assert 0.3 * n < len(refused) < 0.8 * n  # both outcomes are well represented,
    assert len(set(refused)) >= reasons  # and so are the reasons


FORMS = pytest.mark.parametrize(("short", "reasons"), [(False, 15), (True, 7)], ids=["full", "short"])


@FORMS
def test_the_same_bytes_give_the_same_numbers_or_the_same_refusal(ask, short, reasons):
    differ(ask, 1, 4000, short=short, reasons=reasons)


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_more_bytes_give_the_same_numbers_or_the_same_refusal(ask, seed, short, reasons):
    differ(ask, seed, 20000, short=short, reasons=reasons)


@pytest.mark.parametrize("b", [1, 7, 29, 31, 64, 212, 2053, 6149])
@pytest.mark.parametrize("codec", ["trellis1", "trellis2", "trellis3"])
def test_the_same_numbers_and_salt_give_the_same_bytes(ask, codec, b):
    rng, rounding = np.random.default_rng(b), Key(9).fold_in("rounding", b)
    header = Header(run=3, round=5, family="srht", d=10**5, b=b, key=Key(4), codec=codec, tiny=1)
    values, extra = (rng.standard_normal(b) ** 3).astype(np.float32), [0.3]
    asked = {"header": as_json(header), "values": values.tobytes().hex(), "weight": 1.0, "agreed": 1.0}
    (got,) = ask([{"ask": "encode", **asked, "rounding": rounding.bits.hex(), "extra": extra}])
    assert got["frame"] == encode(values, header, rounding=rounding, extra=extra, agreed=1.0).hex()


def test_keys_are_the_same(ask):
    rng = np.random.default_rng(3)
    steps = [0, -1, 2**31, -(2**40), "round", "", "größe", "🙂", 2**53 - 1]
    paths = [[steps[i] for i in rng.integers(len(steps), size=rng.integers(6))] for _ in range(50)]
    got = ask([{"ask": "key", "seed": 9, "path": path} for path in paths])
    assert [row["key"] for row in got] == [Key(9).fold_in(*path).bits.hex() for path in paths]


OPERATORS = [
    ("srht", 407050, 13569, {}),
    ("srht", 70000, 9000, {}),
    ("srht", 12345, 1, {}),
    ("srht", 4097, 4097, {}),
    ("srht", 50000, 999, {"block": 4096}),
    ("countsketch", 50000, 999, {}),
    ("countsketch", 5000, 63, {"layout": "block"}),
    ("countsketch", 50000, 999, {"layout": "textbook"}),
]


def test_replicas_in_both_languages_desketch_to_the_same_bits(ask):
    rng = np.random.default_rng(4)
    questions, ours = [], []
    for family, d, b, options in OPERATORS:
        key = Key(11).fold_in("round", d)
        R = draw(family, d=d, b=b, key=key, **options)
        s = (rng.standard_normal(b) * 10.0 ** rng.uniform(-30, 30, b)).astype(np.float32)
        g = rng.standard_normal(d).astype(np.float32)
        operator = {"family": family, "d": d, "b": b, "key": key.bits.hex(), "options": options}
        questions += [{"ask": "desketch", "s": s.tobytes().hex(), **operator}]
        questions += [{"ask": "sketch", "g": g.tobytes().hex(), **operator}]
        ours += [R.desketch(s) + np.float32(0), R.sketch(g)]
    theirs = [np.frombuffer(bytes.fromhex(row["values"]), "<f4") for row in ask(questions)]
    for operator, back, there in zip(OPERATORS, range(0, len(ours), 2), range(1, len(ours), 2), strict=True):
        assert theirs[back].tobytes() == ours[back].tobytes(), operator
        np.testing.assert_allclose(theirs[there], ours[there], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("model", ["softmax", "mlp:12", "mlp-tanh:9-7"])
def test_local_steps_are_those_of_torch(ask, model):
    task = load_task("digits")
    flat = FlatModel(build_model(model, task, seed=3))
    w, data = flat.flatten(), ClientData(0, task.x_train[:50], task.y_train[:50])
    ours = local_update(flat, w, data, LocalWork(steps=5, eta=0.1, batch=None), t=1)
    numbers = {"w": w, "x": data.x.reshape(50, -1).float(), "y": data.y.to(torch.uint8)}
    question = {name: value.numpy().tobytes().hex() for name, value in numbers.items()}
    work = {"steps": 5, "eta": 0.1}
    (answer,) = ask([{"ask": "train", "model": model, "inputs": 64, "classes": 10, "work": work, **question}])
    theirs = np.frombuffer(bytes.fromhex(answer["values"]), "<f4")
    np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-3, atol=1e-6)
