"""The federated baselines on the language-model bed: a server between the workers, the method's own frames and step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a row on a small text."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import lm_batched

    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(20)]
    (tmp_path / "text").write_text(" ".join(draw.choices(words, k=3000)))
    shape = {"layers": 1, "width": 16, "context": 16, "batch": 4, "lr": 3e-3, "warmup": 0.0, "windows": 64}
    where = {"seed": 1, "link": None, "world": 2, "shards": "iid", "texts": [str(tmp_path / "text")]}

    def run(row: str, steps: int = 30) -> dict[str, Any]:
        return lm_batched.run({"row": row, "steps": steps, **where, **shape}, compiled=False)

    return run


def test_what_a_worker_sends_and_receives_is_counted_by_the_frame(bed: Any) -> None:
    dense = bed("fedadam:every=10")
    assert dense["rounds"] == 3
    assert dense["bytes"] == 3 * 2 * (4 * dense["d"] + 4)  # f32 both ways, and a check of four bytes
    thin = bed("eden:every=10")
    assert dense["bytes"] / 33 < thin["bytes"] < dense["bytes"] / 31


@pytest.mark.parametrize(
    ("row", "per_round"),
    [
        ("eden:every=10,optimizer=sgd,eta_global=1.0", 0.3),
        ("topk:density=0.05,every=10,eta_global=1.0", 0.35),
        ("stc:density=0.05,every=10,eta_global=1.0", 0.15),
        ("fetchsgd:compression=4,density=0.1,every=10,eta_global=1.0", 2.0),
        ("fedadam:every=10,eta_global=0.003", 8.1),
    ],
)
def test_every_method_trains_within_its_bytes(bed: Any, row: str, per_round: float) -> None:
    result = bed(row, steps=60)
    assert result["rounds"] == 6
    assert result["curve"][-1][2] < result["curve"][0][2] - 0.01
    assert 0 < result["bytes"] < 6 * per_round * result["d"]


def test_decomfl_sends_its_slopes_and_nothing_else(bed: Any) -> None:
    result = bed("decomfl:every=5,directions=10,eta_local=0.01", steps=40)
    assert result["rounds"] == 8
    assert result["bytes"] == pytest.approx(8 * 2 * (5 * 10 * 2), abs=8 * 2 * 4)
    assert result["curve"][-1][2] < result["curve"][0][2]
