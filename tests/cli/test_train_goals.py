"""``desketch train`` beyond classes: text, numbers and several labels end to end, each judged by its own metric."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from desketch.cli.app import main
from desketch.report import render_report

SMALL = "--clients 3 --local-steps 2 --batch-size 8 --compression 4 --checkpoint-every 2 --evaluate-every 2 --quiet"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "story.txt").write_text("".join(rng.choice(["to be ", "or not ", "to be: "], 500)))
    x = rng.normal(size=(120, 2))
    price, p, q = 50 + 10 * x[:, 0] + x[:, 1], (x[:, 0] > 0).astype(int), (x[:, 1] > 0).astype(int)
    rows = [f"{a:.4f},{b:.4f},{c:.3f},{d},{e}" for (a, b), c, d, e in zip(x, price, p, q, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,price,p,q", *rows]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def desketch(folder, monkeypatch):
    def call(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["desketch", *arguments])
        try:
            main()
        except SystemExit as exit:
            if exit.code:
                raise

    return call


CASES = {
    "perplexity": "--task text:story.txt --model gpt:1x8 --context 16 --partition shards:1",
    "rmse": "--task csv:table.csv --label price --model mlp:4",
    "f1": "--task csv:table.csv --label p,q --model softmax",
}


@pytest.mark.parametrize("metric", CASES)
def test_a_run_is_judged_by_its_own_metric_and_resumes_bit_for_bit(folder, desketch, metric):
    arguments = ["train", *CASES[metric].split(), *SMALL.split()]
    desketch(*arguments, "--rounds", "5", "--out", "whole", "--json", "whole.json")
    desketch(*arguments, "--rounds", "3", "--out", "cut")
    desketch("train", "--resume", "--out", "cut", "--rounds", "5", "--quiet")
    whole, cut = (json.loads((folder / run / "summary.json").read_text()) for run in ("whole", "cut"))
    assert whole["metric"] == metric
    for name in (f"test_{metric}", f"val_{metric}", "test_loss", "replica_digest"):
        assert whole[name] == cut[name]
    assert whole == {**json.loads((folder / "whole.json").read_text()), "sha256": whole["sha256"]}
    assert not any("accuracy" in name for name in whole if metric != "f1")
    rows = [json.loads(line) for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows if metric in row] == [2, 4, 5]
    page = render_report(folder / "whole")
    assert f"<span>test {metric}</span>" in page
    assert f"{ {'perplexity': 'Perplexity', 'rmse': 'RMSE', 'f1': 'F1'}[metric] } against bytes" in page
    assert "Accuracy against" not in page


def test_the_table_names_the_metric(desketch, capsys):
    desketch("train", *CASES["rmse"].split(), *SMALL.split()[:-1], "--rounds", "2", "--out", "run")
    printed = capsys.readouterr().out
    assert "test rmse" in printed
    assert "test r2" in printed
    assert "accuracy" not in printed


def test_a_target_that_shrinks_is_reached_from_above(folder, desketch):
    given = "--label price --model softmax --methods fedavgm --untuned fedavgm --seeds 1 --target 9 --rounds 40"
    desketch("compare", "--task", "csv:table.csv", *given.split(), "--clients", "3", "--json", "out.json")
    report = json.loads((folder / "out.json").read_text())
    (row,) = report["methods"]
    assert report["metric"] == "rmse"
    assert row["reached"] == 1
    assert row["last_rmse"] < 9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--task text:empty.txt --model gpt:1x8", "is empty"),
        ("--task text:story.txt --model gpt:1x8 --context 4000", "lower the context"),
        ("--task text:story.txt", "choose gpt"),
        ("--task csv:table.csv --label cost", "no column 'cost'"),
        ("--task csv:table.csv --label p,cost", "no column 'cost'"),
        ("--task csv:table.csv --label price,p", "answers are 0 or 1"),
        ("--task csv:holes.csv --label y", "row 3: label column 'y' is empty"),
        ("--task csv:words.csv --label y --goal regression", "numeric label, got 'high'"),
        ("--task csv:nan.csv --label y", "a label is not a number"),
        ("--task csv:table.csv --goal ranking", "goal"),
    ],
)
def test_mistakes_are_one_clear_message(folder, desketch, capsys, arguments, words):
    (folder / "empty.txt").write_text("")
    for name, odd in (("holes", ""), ("words", "high"), ("nan", "nan")):
        lines = [f"{i},{odd if i == 2 else i / 3}" for i in range(1, 30)]
        (folder / f"{name}.csv").write_text("\n".join(["x,y", *lines]))
    with pytest.raises(SystemExit, match="2"):
        desketch("train", *arguments.split(), "--out", "run")
    assert words in " ".join(capsys.readouterr().err.split())
