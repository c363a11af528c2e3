"""When not to sketch: a lone client is judged beside the run, and the advice follows from the number."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from desketch.api.configured import train_run
from desketch.cli.plan import app
from desketch.fed import run
from desketch.fed.alone import followed
from desketch.tasks import RunConfig, prepare
from desketch.tasks.worth import LEAST_GAIN, Worth, measure_worth

EASY = {"task": "digits", "model": "softmax", "partition": "iid", "eta_local": 0.5}


def test_the_gain_is_the_part_of_the_error_that_communicating_removed():
    assert Worth("accuracy", 0.8, 0.9, 1, 5).gain == pytest.approx(0.5)
    assert Worth("perplexity", 10.0, 12.0, 1, 5).gain == pytest.approx(-0.2)
    assert Worth("accuracy", 1.0, 1.0, 1, 5).gain == 0.0
    assert Worth("rmse", 2.0, 2.0 * (1 - LEAST_GAIN), 1, 5).pays
    assert not Worth("rmse", 2.0, 2.0 * (1.01 - LEAST_GAIN), 1, 5).pays


def test_the_sentence_has_the_numbers_and_says_what_to_do():
    assert Worth("accuracy", 0.8, 0.9, 1, 5).sentence() == (
        "one client alone, with no byte sent, had 80.00% validation accuracy after the local steps of 5 rounds, "
        "this run 90.00%: communicating removed 50% of the error"
    )
    assert "the local steps of 1 round, this run" in Worth("accuracy", 0.8, 0.9, 1, 1).sentence()
    behind = Worth("perplexity", 10.0, 12.0, 3, 5).sentence()
    assert behind.startswith("3 clients alone")
    assert "added 20% to the error" in behind
    assert "train alone" in behind
    assert "removed only 2% of the error; do not sketch here" in Worth("perplexity", 10.0, 9.8, 1, 5).sentence()


@pytest.mark.parametrize(("clients", "most", "ids"), [(3, 5, [0, 1, 2]), (50, 10, list(range(0, 50, 5))), (7, 1, [0])])
def test_clients_to_follow_are_spread_out(clients, most, ids):
    assert followed(clients, most=most) == ids


def test_clients_whose_data_differ_gain_and_those_with_enough_of_their_own_are_told_not_to_sketch(tmp_path):
    apart = RunConfig(**{**EASY, "partition": "shards:2"}, clients=10, rounds=12, compression=2)
    found = train_run(apart, out=tmp_path / "apart")["alone"]
    assert found["clients"] == 1
    assert found["round"] == 12
    assert found["gain"] > 0.5
    alike = RunConfig(**EASY, clients=4, rounds=20, compression=300)
    summary = train_run(alike, out=tmp_path / "alike")
    found = summary["alone"]
    assert found["round"] == 8  # a tenth of the local work of four clients
    assert not found["pays"]
    told = CliRunner().invoke(app, ["--from-run", str(tmp_path / "alike"), "--json", "-"])
    assert any(found["advice"] in note for note in json.loads(told.stdout)["notes"])


def test_a_lone_client_takes_the_steps_it_took_in_the_run():
    """A federation of one client that sends everything is that client alone (oracle: the run itself)."""
    config = RunConfig(**EASY, clients=10, rounds=4, average=1)
    setup = prepare(config)
    w, work = setup.model.flatten(), setup.work
    participant = setup.participants(None)[0]
    for t in range(1, 5):
        w = w + participant.update(w, t)[0]
    assert work.steps == config.local_steps
    rows = [{"round": t, "val_accuracy": 0.5} for t in range(1, 5)]
    expected = setup.evaluate(w)["val_accuracy"]
    found = measure_worth(setup, rows)
    assert found is not None
    assert (found.alone, found.together, found.round) == (pytest.approx(expected), 0.5, 4)


def test_nothing_is_told_of_a_private_run_nor_without_a_validation_set():
    rows = [{"round": t, "val_accuracy": 0.5} for t in range(1, 5)]
    dp = {"mechanism": "sketch-clip", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}
    assert measure_worth(prepare(RunConfig(**EASY, clients=10, rounds=4, dp=dp)), rows) is None
    assert measure_worth(prepare(RunConfig(**EASY, clients=10, rounds=4)), [{"round": 1}]) is None
    assert measure_worth(prepare(RunConfig(**EASY, clients=1, rounds=4)), rows) is None


def test_it_leaves_the_run_as_it_was():
    setup = prepare(RunConfig(**EASY, clients=10, rounds=3))
    federation = setup.federation()
    run(federation, rounds=3)
    before, w0 = federation.digest(), setup.model.flatten()
    measure_worth(setup, [{"round": t, "val_accuracy": 0.5} for t in range(1, 4)])
    assert federation.digest() == before
    assert torch.equal(setup.model.flatten(), w0)
