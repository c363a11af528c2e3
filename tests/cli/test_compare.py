"""``desketch compare`` end to end on the digits: one JSON document, a plot, a rerun that trains nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from desketch.baselines import compare
from desketch.cli.app import cli

ARGUMENTS = ["compare", "--model", "softmax", "--methods", "fedavgm,desketch", "--seeds", "2", "--target", "0.8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def report(folder):
    small = ["--untuned", "fedavgm,desketch", "--rounds", "60", "--out", str(folder), "--json", "-"]
    done = CliRunner().invoke(cli, [*ARGUMENTS, *small])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_stdout_is_one_document_with_a_row_per_method(report):
    assert [row["method"] for row in report["methods"]] == ["fedavgm", "desketch"]
    for row in report["methods"]:
        assert (row["seeds"], row["tuning_runs"]) == (2, 0)
    assert report["command"].startswith("desketch")
    assert report["target"] == 0.8


def test_files_are_left_behind(report, folder):
    assert json.loads((folder / "compare.json").read_text())["methods"] == report["methods"]
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((folder / "trials.json").read_text())["trials"]) == 4


def test_a_rerun_trains_nothing(report, folder, monkeypatch):
    monkeypatch.setattr(compare, "train", lambda *a, **k: pytest.fail("a stored trial was trained again"))
    again = ["--untuned", "fedavgm,desketch", "--rounds", "60", "--out", str(folder)]
    done = CliRunner().invoke(cli, [*ARGUMENTS, *again])
    assert done.exit_code == 0, done.output
    assert "desketch" in done.stdout


def test_a_method_that_clients_alone_leave_behind_is_marked(tmp_path, monkeypatch):
    """With a grid for large models STC is far too sparse for 650 weights: more rounds than a client alone."""
    monkeypatch.setattr("desketch.cli.compare.fitted", lambda method, d: method)
    options = ["--methods", "alone,stc,eden", "--target", "0.8", "--rounds", "80", "--seeds", "1", "--model", "softmax"]
    done = CliRunner().invoke(cli, ["compare", *options, "--sooner", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = {words[1]: words for line in done.stdout.splitlines() if len(words := line.split()) > 5}
    assert "*" in rows["stc"] or "never" in rows["stc"]
    assert "*" not in rows["alone"]
    report = json.loads((tmp_path / "compare.json").read_text())
    tuned = {row["method"]: row["tuning_rounds"] for row in report["methods"]}
    assert report["tuned_for"] == "the fewest bytes with which the target is held sooner than by clients alone"
    assert tuned["stc"] is None
    assert tuned["eden"] is None or tuned["eden"] < tuned["alone"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "fedavgm,eten"], "eten"),
        (["--target", "84"], "between 0 and 1"),
        (["--untuned", "x"], "x"),
        (["--sooner", "--untuned", "eden"], "eden shall keep the default"),
    ],
)
def test_mistakes_are_named(arguments, words):
    done = CliRunner().invoke(cli, ["compare", *arguments])
    assert done.exit_code != 0
    assert words in str(done.exception)
