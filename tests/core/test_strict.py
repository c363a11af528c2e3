"""What is written as JSON is JSON: a metric that is not finite is null, for every reader."""

from __future__ import annotations

import json

import pytest
import torch

import desketch as ds
from desketch.cli.document import emit
from desketch.core.rows import read_rows, write_rows
from desketch.core.strict import strict
from desketch.report.records import read_run

NAN, INF = float("nan"), float("inf")


def by_the_book(text):
    """Parse as others do: Python alone takes NaN and Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_everything_but_what_is_not_finite_stays():
    values = {"a": NAN, "b": [INF, 1.5, (-INF, "NaN")], "c": {3: {"d": True, "e": None, "f": 7}}}
    assert strict(values) == {"a": None, "b": [None, 1.5, [None, "NaN"]], "c": {3: {"d": True, "e": None, "f": 7}}}


def test_rows_of_earlier_versions_are_read_and_written_anew_as_null(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"round": 1, "accuracy": NaN}\n')
    (row,) = read_rows(file).rows
    write_rows(file, [row])
    assert by_the_book(file.read_text())["accuracy"] is None
    assert read_rows(file).rows == ({"round": 1, "accuracy": None},)


def test_documents_are_strict(capsys, tmp_path):
    emit({"psnr": INF}, "-", lambda: None)
    assert by_the_book(capsys.readouterr().out) == {"psnr": None}
    emit({"psnr": INF}, str(tmp_path / "a.json"), lambda: None)
    assert by_the_book((tmp_path / "a.json").read_text()) == {"psnr": None}


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_run_whose_metric_is_not_finite_is_written_reported_and_resumed(tmp_path, value):
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    clients = [ds.Client(x[c::2], y[c::2]) for c in range(2)]

    def go(rounds, **more):
        return ds.federate(
            torch.nn.Linear(3, 1),
            clients,
            loss=torch.nn.functional.mse_loss,
            rounds=rounds,
            wire=ds.Wire(compression=1, codec="f32"),
            evaluate=lambda model: {"odd": value, "even": 1.0},
            out=tmp_path / "run",
            **more,
        )

    torch.manual_seed(0)
    go(2)
    torch.manual_seed(0)
    assert go(3, resume=True).rounds == 3
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [by_the_book(line)["odd"] for line in lines] == [None] * 3
    assert by_the_book((tmp_path / "run" / "summary.json").read_text())["metrics"] == {"odd": None, "even": 1.0}
    assert read_run(tmp_path / "run").rows[-1]["even"] == 1.0
    assert (tmp_path / "run" / "report.html").is_file()
