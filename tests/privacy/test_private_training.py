"""The mechanisms inside real runs: they learn, they stop in time, and their folders can be accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from desketch.cli.app import cli
from desketch.fed import run
from desketch.privacy.accountants import epsilon
from desketch.tasks import RunConfig, prepare

KINDS = {
    "per-step": ({"mechanism": "per-step"}, {"clients": 2, "local_steps": 2, "batch_size": 32}),
    "sketch-clip, example": (
        {"mechanism": "sketch-clip", "unit": "example"},
        {"clients": 2, "local_steps": 1, "batch_size": 32},
    ),
    "sketch-clip, client": ({"mechanism": "sketch-clip"}, {"clients": 60, "fraction": 0.4, "local_steps": 3}),
    "shared noise": (
        {"mechanism": "sketch-clip", "noise_by": "clients"},
        {"clients": 60, "fraction": 0.4, "local_steps": 3, "codec": "f32"},
    ),
}


def config(kind: str, *, rounds: int, **dp: Any) -> RunConfig:
    mechanism, settings = KINDS[kind]
    given = {"codec": "int8", "codec_down": "int8"} | settings
    return RunConfig(
        **given,
        model="softmax",
        partition="iid",
        compression=4,
        rounds=rounds,
        eta_local=0.5,
        server_optimizer="momentum",
        eta_global=1.0,
        evaluate_every=1000,
        dp={"delta": 1e-5, "clip": 1.0} | mechanism | dp,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_with_little_noise(kind: str) -> None:
    setup = prepare(config(kind, rounds=40, noise_multiplier=0.3, not_private_seed=3))
    federation = setup.federation(privacy=setup.privacy())
    run(federation, rounds=40)
    assert setup.evaluate(federation.model_vector)["accuracy"] > 0.75


@pytest.mark.parametrize(("kind", "z", "budget"), [("per-step", 1.5, 1.0), ("sketch-clip, client", 3.0, 1.5)])
def test_the_run_ends_before_the_release_that_would_exceed_the_budget(kind: str, z: float, budget: float) -> None:
    setup = prepare(config(kind, rounds=50, noise_multiplier=z, epsilon=budget))
    privacy = setup.privacy()
    assert privacy is not None
    federation = setup.federation(privacy=privacy)
    run(federation, rounds=50)
    ledger = privacy.ledger.record.ledger
    assert federation.spent_budget
    assert federation.t == max(sum(counts.values()) for counts in ledger.spent.values()) < 50
    assert epsilon(ledger, 1e-5) <= budget


def test_a_run_folder_is_accounted_for_as_the_run_claimed(tmp_path: Path) -> None:
    flags = ["--dp", "sketch-clip", "--epsilon", "4", "--delta", "1e-5", "--clip", "1.0", "--clients", "40"]
    flags += ["--model", "softmax", "--rounds", "4", "--local-steps", "2", "--fraction", "0.5", "--partition", "iid"]
    trained = CliRunner().invoke(cli, ["train", *flags, "--out", str(tmp_path / "run")])
    assert trained.exit_code == 0, trained.output
    result = CliRunner().invoke(cli, ["account", str(tmp_path / "run"), "--json", "-"])
    spent = json.loads(result.stdout)["pld"]
    assert spent == pytest.approx(4, rel=1e-3)
    assert spent <= 4
    claim = json.loads((tmp_path / "run" / "privacy.json").read_text())["claim"]
    assert claim["unit"] == "client"
    assert "trusted" in claim["observer"]
