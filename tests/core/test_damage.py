"""Damage on disk: whatever bytes change, the file is refused by name or read as it was, never as something else."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from desketch.core.checkpoint import load_checkpoint, save_checkpoint
from desketch.core.files import append_durably, intact, read_sealed, seal, sealed_json
from desketch.core.rows import append_row, read_rows, write_rows
from desketch.core.tree import pack_tensors, pack_tree, unpack_tree
from desketch.errors import RunError

FLIPS = 300
STATE = {"w": torch.arange(300.0), "log": b"frames" * 9, "versions": {"0": 3}, "eta": 0.1}


def flipped(data, rng):
    """The data with one random bit changed."""
    bit = rng.randrange(8 * len(data))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_bit_of_a_checkpoint_can_change_unnoticed(tmp_path):
    """Of a run and of a server alike; the weights used to be read as they came."""
    save_checkpoint(tmp_path, STATE, t=3, identity="a")
    (path,) = tmp_path.iterdir()
    data, rng = path.read_bytes(), random.Random(1)
    for _ in range(FLIPS):
        path.write_bytes(flipped(data, rng))
        with pytest.raises(RunError, match=r"round-000003\.safetensors"):
            load_checkpoint(tmp_path, identity="a")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_checkpoint_is_named(tmp_path, share):
    save_checkpoint(tmp_path, STATE, t=3)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(RunError, match=r"round-000003\.safetensors is damaged.*backup"):
        load_checkpoint(tmp_path)


def test_no_bit_of_a_table_can_change_a_row(tmp_path):
    """A flip costs at most the row it hits, even one that joins two lines; all others are read, and it is reported."""
    path, rng = tmp_path / "metrics.jsonl", random.Random(2)
    rows = [{"round": t, "loss": 1 / t, "refused": {"2": 'digest: "off"\n'}} for t in range(1, 9)]
    write_rows(path, rows)
    data = path.read_bytes()
    joined = [i for i, byte in enumerate(data) if byte == ord("\n")]
    damages = [flipped(data, rng) for _ in range(FLIPS)] + [data[:i] + b"\x0b" + data[i + 1 :] for i in joined[:-1]]
    for damage in damages:
        path.write_bytes(damage)
        found = read_rows(path)
        assert all(row in rows for row in found.rows)
        assert len(found.rows) >= len(rows) - 1
        assert found.damaged or len(found.rows) == len(rows) or damage[-1:] != b"\n" or found.rows[-1] != rows[-1]
    path.write_bytes(data.replace(b'"loss": 0.5', b'"loss": 0.4'))
    assert read_rows(path).damaged == (2,)
    assert "line 2 cannot be read" in read_rows(path).report(path)


def test_a_torn_line_never_swallows_the_next(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for t in (1, 2):
        append_row(path, {"round": t})
    torn = path.read_bytes()[:-30]
    path.write_bytes(torn)
    assert [row["round"] for row in read_rows(path).rows] == [1]
    assert not read_rows(path).damaged  # a killed run, not damage
    append_row(path, {"round": 2, "loss": 0.5})
    assert [row["round"] for row in read_rows(path).rows] == [1, 2]


def test_rows_without_seals_are_taken_as_they_are(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_rows(path).rows == ()
    path.write_text('{"round": 1}\nnonsense\n{"round": 1, "again": 1}\n[1]\n{"round": "x"}\n{"round": 3}')
    found = read_rows(path)
    assert found.rows == ({"round": 1, "again": 1}, {"round": 3})
    assert found.damaged == (2, 4, 5)
    append_durably(path, sealed_json({"round": 4}))
    assert [row["round"] for row in read_rows(path).rows] == [4]  # one seal: all must have one


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.floats(allow_nan=False)))
def test_a_sealed_object_is_json_with_one_more_member(values):
    import json

    values.pop("sha256", None)
    for indent in (None, 2):
        text = sealed_json(values, indent)
        back = json.loads(text)
        assert back.pop("sha256")
        assert back == values
        assert intact(text[:-1])
        assert text.count(b"\n") == 1 or indent


def test_sealed_tensors_are_what_other_readers_expect():
    blob = pack_tensors({"a": torch.ones(3).repeat(2, 1).T})
    assert intact(blob)
    assert torch.equal(load(blob)["a"], torch.ones(3, 2))
    assert torch.equal(unpack_tree(pack_tree(STATE, sealed=True))["w"], STATE["w"])


@pytest.mark.parametrize("data", [b"", b"no seal", b'{"sha256": "' + b"1" * 64 + b'"}'])
def test_only_a_blank_is_filled(data):
    with pytest.raises(ValueError, match="blank"):
        seal(data)
    assert not intact(data)


def test_a_missing_file_is_named_with_what_to_do(tmp_path):
    with pytest.raises(RunError, match=r"gone\.json is missing; fetch it again"):
        read_sealed(tmp_path / "gone.json", "fetch it again")
