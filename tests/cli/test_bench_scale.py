"""``desketch bench scale``: a case in its own process, added to what the file has; marks are judged as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from desketch.bench.scale import CASES, measure, verdicts
from desketch.cli.bench_scale import scale
from desketch.errors import InputError


def test_one_case_is_measured_and_the_others_of_the_file_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scale.json"
    file.write_text(json.dumps({"cases": {"wide": {"title": "kept", "ratio": 0.5}}}))
    scale(only=["users"], repeats=1, json_to=str(file))
    document = json.loads(file.read_text())
    assert document["cases"]["wide"] == {"title": "kept", "ratio": 0.5}
    row = document["cases"]["users"]
    assert (row["d"], row["cohort"], row["clients"]) == (49_300, 50, 1000)
    assert row["ratio"] > 0 < row["peak_vectors"]
    assert CASES["users"].title in capsys.readouterr().out.replace("\n", " ")


def test_marks_are_the_most_that_a_figure_may_be() -> None:
    assert verdicts("wide", {"ratio": 0.9, "peak_vectors": 6.1}) == [
        ("ratio", 0.9, 0.9, True),
        ("peak_vectors", 6.1, 6.0, False),
    ]
    assert verdicts("billion", {"skipped": "no memory"}) == [("peak_vectors", None, 4.5, None)]
    with pytest.raises(InputError, match="there is no case huge; choose of wide"):
        measure(["huge"])


def test_a_case_that_there_is_no_memory_for_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desketch.bench.scale._free_gigabytes", lambda: 3.0)
    (row,) = measure(["billion"])["cases"].values()
    assert row["skipped"] == "needs 15 GB of memory, 3.0 GB were free"


def test_peak_is_what_was_taken_in_between_and_given_back() -> None:
    """In a process of its own: one with a past has memory left over that it takes again without anybody seeing it."""
    program = """
from desketch.bench.peak import Peak

bytearray(50 << 20)
with Peak() as memory:
    filled = bytearray(b"x" * (20 << 20))
    del filled
print(memory.bytes)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 20 << 20 <= int(done.stdout) < 45 << 20
