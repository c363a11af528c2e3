"""desketch verify: the exit code, one JSON document, and progress that can be read in a log."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from desketch.cli import verify as command
from desketch.verify import suite
from desketch.verify.rows import Row

ROW = Row("lem:vtk", "setting", "srht", 0.5, True, False, "exact")


@pytest.mark.parametrize(
    ("rows", "code"),
    [([ROW], 0), ([ROW, replace(ROW, holds=False, worst_ratio=2.0)], 1), ([replace(ROW, refuted=True)], 1)],
    ids=["all hold", "one violated", "not refuted"],
)
def test_exit_code_and_json(rows, code, monkeypatch):
    monkeypatch.setattr(suite, "verify", lambda *_, **__: iter(rows))
    result = CliRunner().invoke(command.app, ["--quick", "--json", "-"])
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert (document["scale"], document["seed"]) == ("quick", 2023)
    assert document["cpu_seconds"] >= 0
    needed = {"theorem", "paper", "setting", "family", "worst_ratio", "holds", "verdict", "corrected"}
    assert all(set(row) >= needed for row in document["rows"])
    assert len(document["rows"]) == len(rows)
    table = CliRunner().invoke(command.app, ["--quick", "--worst"])
    assert table.exit_code == code
    assert "not as expected" in table.stdout


def test_progress_is_plain_lines_when_piped(monkeypatch):
    def stream(scale, *, seed, progress):
        progress("1/2 first")
        progress("2/2 second")  # at once: not worth a line of its own
        yield ROW

    monkeypatch.setattr(suite, "verify", stream)
    result = CliRunner().invoke(command.app, ["--quick", "--json", "-"])
    assert [line.split(None, 2)[2] for line in result.stderr.splitlines()] == ["1/2 first"]
    assert "\x1b" not in result.stderr


def test_function_table_as_json_and_table(tmp_path):
    result = CliRunner().invoke(command.app, ["--functions", "--json", str(tmp_path / "functions.json")])
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "functions.json").read_text(encoding="utf-8"))
    assert len(rows) == 13
    assert rows[0]["verdicts"]["semi-smooth"]["ours"] is True
