"""The grid of attacks: every attack is what it says, rows are written as they finish and found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from desketch.cli.bench import app
from desketch.errors import ConfigError
from desketch.hostile.attacks import ATTACKS, HostileCrew
from desketch.hostile.bench import Bed, cells, measure
from desketch.hostile.losses import cell_losses, loss, losses

SMALL = Bed(model="softmax", rounds=2, local_steps=2, clients=5)


class Crew:
    """Gives everybody the row of its id."""

    engine = None

    def updates(self, w, participants, t):
        return torch.stack([torch.full((4,), 1.0 + p.client) for p in participants]), [1.0] * len(participants)


class Member:
    def __init__(self, client):
        self.client = client


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_attackers_change_what_they_send(attack):
    rows, weights = HostileCrew(Crew(), frozenset({1, 3}), attack).updates(torch.zeros(4), [*map(Member, range(5))], 1)
    honest = Crew().updates(None, [*map(Member, range(5))], 1)[0]
    kept = [0, 2, 4]
    assert torch.equal(rows[kept], honest[kept])
    assert [weights[i] for i in kept] == [1.0] * 3
    expected = {
        "sign-flip": -100 * honest[1],
        "weight": -honest[1],
        "label-flip": honest[1],
        "alie": torch.full((4,), 3 - 1.5 * 2.0),
        "ipm": torch.full((4,), -6.0),
    }
    if attack in expected:
        torch.testing.assert_close(rows[1], expected[attack])
    assert weights[1] == (1e6 if attack == "weight" else 1.0)
    if attack == "gaussian":
        torch.testing.assert_close(rows[1].norm(), 100 * honest[1].norm())
    if attack == "absent":
        assert bool(rows[1].isnan().all())


def test_rows_are_found_again_and_another_bed_is_refused(tmp_path: Path):
    path, told = tmp_path / "rows.json", []
    wanted = list(cells(partitions=("iid",), attackers=(1,), attacks=("sign-flip",), rules=("none", "norm-bound")))
    first = measure(SMALL, wanted[:3], path, lambda place, row: told.append(place))
    rows = measure(SMALL, wanted, path, lambda place, row: told.append(place))
    assert told == list(range(8))
    assert rows[:3] == first
    assert json.loads(path.read_text())["rows"] == rows
    assert [row["refused"] for row in rows if row["rule"] == "norm-bound" and row["attackers"]] == [2, 2]
    honest = next(row for row in rows if row["attackers"] == 0)
    assert loss(rows, honest) == 0.0
    heads, lines = losses(rows)
    assert heads == ["data", "attack", "none", "norm-bound"]
    assert [line[:2] for line in lines] == [["iid", "-"], ["iid", "sign-flip, 1"]]
    with pytest.raises(ConfigError, match="another bed"):
        measure(Bed(), wanted, path, lambda place, row: None)
    with pytest.raises(ConfigError, match="unknown attack"):
        list(cells(partitions=("iid",), attackers=(1,), attacks=("shout",), rules=("none",)))


def test_the_command_prints_rows():
    settings = "--model softmax --rounds 1 --local-steps 1 --clients 5 --attackers 1 --attacks ipm --partitions iid"
    result = CliRunner().invoke(app, ["robust", *settings.split(), "--rules", "rfa", "--json", "-"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [(row["attack"], row["rule"], row["domain"]) for row in rows] == [
        (None, "rfa", "sketch"),
        (None, "rfa", "raw"),
        ("ipm", "rfa", "sketch"),
        ("ipm", "rfa", "raw"),
    ]


def test_losses_are_paired_by_seed_and_averaged():
    def row(seed, accuracy, attackers):
        rule, attack = ("none", None) if attackers == 0 else ("rfa", "ipm")
        cell = {"partition": "iid", "attack": attack, "attackers": attackers, "rule": rule, "domain": "sketch"}
        return {**cell, "seed": seed, "accuracy": accuracy, "limited": seed}

    rows = [row(0, 0.80, 0), row(1, 0.70, 0), row(0, 0.79, 1), row(1, 0.67, 1)]
    honest, attacked = cell_losses(rows)
    assert (honest["loss"], honest["error"]) == (0.0, 0.0)
    assert attacked["loss"] == pytest.approx(2.0)  # 1 and 3 points, never 0.80 - 0.67
    assert attacked["error"] == pytest.approx(1.0)
    assert (attacked["seeds"], attacked["limited"]) == (2, 1)
    with pytest.raises(LookupError, match="iid, sketch, 2"):
        cell_losses([*rows, row(2, 0.5, 1)])


def test_every_seed_is_its_own_run():
    grid = cells(seeds=(0, 7), partitions=("iid",), attackers=(1,), attacks=("ipm",), rules=("none",))
    rows = measure(SMALL, list(grid), None, lambda place, row: None)
    assert [row["seed"] for row in rows] == [0] * 4 + [7] * 4
    assert rows[0]["accuracy"] != rows[4]["accuracy"]
