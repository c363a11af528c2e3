"""``desketch bench engine`` measures both sides and prints one document."""

from __future__ import annotations

import json

import pytest
import torch

from desketch.cli.bench_engine import engine


def test_the_document_holds_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    engine(repeats=1, compression=100.0, codec="sign1", json_to="-")
    torch.set_num_threads(threads)
    document = json.loads(capsys.readouterr().out)
    assert document["d"] == 49_300
    assert document["ratio"] > 0
    assert 0 < document["sketch_wire_share"] < 1
