"""``desketch bench kernels`` measures every family both ways and prints one document; marks are for the full size."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from desketch.bench import kernels
from desketch.cli.bench import app
from desketch.sketches import FAMILIES

TABLES = Path(__file__).resolve().parents[2] / "docs" / "tables" / "kernels.py"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    threads = torch.get_num_threads()
    done = CliRunner().invoke(app, ["kernels", "--d", "16384", "--b", "200", "--repeats", "3", "--json", "-"])
    torch.set_num_threads(threads)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def test_every_family_is_measured_both_ways(document: dict[str, Any]) -> None:
    items = [row["item"] for row in document["kernels"] + document["dense"]]
    assert {item.split()[0] for item in items} == set(FAMILIES)
    assert sum(item.endswith(" transpose") for item in items) * 2 == len(items)
    assert all(row["cpu_ms"] >= 0 for row in document["kernels"])


def test_marks_are_for_the_full_size_only(document: dict[str, Any]) -> None:
    assert (document["d"], document["b"], document["threads"]) == (16384, 200, 1)
    assert document["marks"] == []


def test_every_mark_finds_its_number_and_its_row_in_the_table(document: dict[str, Any]) -> None:
    if document["import_ms"] is None:
        pytest.skip("needs the compiled kernels")
    marks = kernels.marks(document)
    assert [mark["item"] for mark in marks] == list(kernels.MARKS)
    spec = importlib.util.spec_from_file_location("tables_kernels", TABLES)
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert len(tables.marks(document | {"marks": marks}).splitlines()) == 2 + len(marks)
    assert len(tables.peers(document).splitlines()) == 2 + len(document["peers"])
