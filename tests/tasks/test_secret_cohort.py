"""Client-level privacy that counts on a secret cohort: no file of a run says who was asked, or how many."""

from __future__ import annotations

import json

import numpy as np
import pytest

from desketch.api.configured import train_run
from desketch.errors import ConfigError
from desketch.fed.secrecy import COHORT_FIELDS, _missed
from desketch.privacy.mechanisms import SketchClipClients
from desketch.tasks import RunConfig

DP = {"mechanism": "sketch-clip", "noise_multiplier": 8.0, "delta": 1e-3, "clip": 1.0}
SMALL = {"model": "softmax", "clients": 6, "local_steps": 1, "partition": "iid", "rounds": 4, "b": 64, "dp": DP}


def published(folder):
    """Everything that is not the server's own state; digits of time and noise taken out."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((folder / "summary.json").read_text())


def test_no_row_and_no_summary_tells_of_a_secret_cohort(tmp_path, monkeypatch):
    """Two runs with very different cohorts publish the same about them: nothing."""
    told = []
    for name, cohorts in (("few", [[], [0], [], [3]]), ("many", [[0, 1, 2, 3, 4, 5]] * 4)):
        left = iter(cohorts)
        monkeypatch.setattr(SketchClipClients, "sample", lambda self, clients, left=left: next(left))
        train_run(RunConfig(**SMALL, fraction=0.3), out=tmp_path / name)
        rows, summary = published(tmp_path / name)
        for row in rows:
            assert not COHORT_FIELDS - {"bytes_up", "bytes_down"} & row.keys()
        kept = ("rounds", "refused", "skipped_rounds", "seconds", "bytes_up_per_client", "bytes_down_per_client")
        traffic = [(row["bytes_up"], row["bytes_down"], row["cohort"]) for row in rows]
        told.append((traffic, [summary[key] for key in (*kept, "fedavg_bytes_per_client", "times_fewer_bytes")]))
        assert "clients dropped" not in (tmp_path / name / "report.html").read_text()
    assert told[0] == told[1]


def test_a_resumed_run_tells_no_more(tmp_path):
    train_run(RunConfig(**SMALL | {"rounds": 2}, fraction=0.5), out=tmp_path / "run")
    train_run(RunConfig(**SMALL, fraction=0.5), out=tmp_path / "run", resume=True)
    rows, summary = published(tmp_path / "run")
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert not any("asked" in row for row in rows)
    assert summary["refused"] is None


@pytest.mark.parametrize("open_run", [{"fraction": 1.0}, {"fraction": 0.5, "dp": None}], ids=["everybody", "no dp"])
def test_where_the_cohort_is_no_secret_all_is_told(open_run, tmp_path):
    train_run(RunConfig(**SMALL | open_run), out=tmp_path / "run")
    rows, summary = published(tmp_path / "run")
    assert all(row.keys() >= COHORT_FIELDS for row in rows)
    assert summary["refused"] == 0


def test_captured_frames_would_tell(tmp_path):
    with pytest.raises(ConfigError, match="who was asked"):
        RunConfig(**SMALL, fraction=0.5, capture=(1,))
    assert RunConfig(**SMALL, capture=(1,)).capture == (1,)


def test_the_expected_bytes_are_those_of_many_runs():
    """A client is away for m rounds with probability (1 - q)^m; simulated beside the closed form."""
    rng = np.random.default_rng(0)
    q, t, frame, most = 0.3, 7, 100, 350
    total = 0
    for _ in range(20000):
        asked = rng.random(t - 1) < q
        missed = t - 1 if not asked.any() else int(asked[::-1].argmax())
        total += min(missed * frame, most)
    assert _missed(q, t, frame, most=most) == pytest.approx(total / 20000, rel=0.02)
