"""Private runs end to end: every mechanism trains, the budget ends a run, and a resumed run forgets no release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from desketch.api.configured import train_run
from desketch.core.checkpoint import load_checkpoint, save_checkpoint
from desketch.tasks import RunConfig

SMALL: dict[str, Any] = {"model": "mlp:8", "clients": 6, "local_steps": 2, "batch_size": 8, "partition": "iid", "b": 64}
KINDS: dict[str, dict[str, Any]] = {
    "client": {"mechanism": "sketch-clip"},
    "shared": {"mechanism": "sketch-clip", "noise_by": "clients"},
    "step": {"mechanism": "per-step"},
    "example": {"mechanism": "sketch-clip", "unit": "example"},
}
EXTRA: dict[str, dict[str, Any]] = {
    "example": {"local_steps": 1},
    "shared": {"codec": "f32"},
    "client": {"fraction": 0.5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_mechanism_spends_at_most_its_budget(tmp_path: Path, kind: str) -> None:
    dp = {**KINDS[kind], "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
    config = RunConfig(**{**SMALL, **EXTRA.get(kind, {})}, rounds=3, dp=dp)
    summary = train_run(config, out=tmp_path / "run")
    assert (summary["stopped_by"], summary["rounds"]) == ("rounds", 3)  # a signal from outside would name itself
    assert 3.9 < summary["epsilon"] <= 4.0
    assert (tmp_path / "run" / "report.html").stat().st_size > 0


def test_the_budget_ends_the_run_and_stays_spent(tmp_path: Path) -> None:
    dp = {"mechanism": "sketch-clip", "noise_multiplier": 2.0, "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
    config = RunConfig(**SMALL, rounds=50, dp=dp, checkpoint_every=100)
    first = train_run(config, out=tmp_path / "run")
    assert first["stopped_by"] == "budget"
    assert 0 < first["rounds"] < 50
    assert first["epsilon"] <= 4.0
    again = train_run(config, out=tmp_path / "run", resume=True)
    assert (again["rounds"], again["replica_digest"]) == (first["rounds"], first["replica_digest"])


def test_releases_after_the_last_checkpoint_are_not_forgotten(tmp_path: Path) -> None:
    dp = {"mechanism": "sketch-clip", "noise_multiplier": 2.0, "delta": 1e-5, "clip": 1.0}
    short = RunConfig(**SMALL, rounds=2, dp=dp, checkpoint_every=100)
    train_run(short, out=tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint"
    stale = load_checkpoint(checkpoint)
    stale["ledger"]["parties"] = {}  # as if the checkpoint had been written before the two releases
    save_checkpoint(checkpoint, stale, t=2, identity=short.identity())
    longer = train_run(RunConfig(**SMALL, rounds=3, dp=dp), out=tmp_path / "run", resume=True)
    alone = train_run(RunConfig(**SMALL, rounds=3, dp=dp), out=tmp_path / "other")
    assert longer["epsilon"] == pytest.approx(alone["epsilon"])
