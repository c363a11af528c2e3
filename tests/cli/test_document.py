"""How commands answer: one document alone on standard output, files named, nothing where quiet is asked for."""

from __future__ import annotations

import json

import pytest

from desketch.cli.document import emit

TABLE = "a table"


@pytest.mark.parametrize(("quiet", "said"), [(False, "a table\nwrote plot.png and {file}\n"), (True, "")])
def test_a_file_is_written_beside_the_table_and_named(tmp_path, capsys, quiet, said):
    file = tmp_path / "answer.json"
    emit({"a": 1}, str(file), lambda: print(TABLE), also=["plot.png"], quiet=quiet)
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": 1}
    assert capsys.readouterr().out == said.format(file=file)


@pytest.mark.parametrize("quiet", [False, True])
def test_standard_output_holds_the_document_alone(capsys, quiet):
    emit({"a": 1}, "-", lambda: print(TABLE), also=["plot.png"], quiet=quiet)
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_without_files_there_is_the_table_alone(capsys):
    emit({"a": 1}, None, lambda: print(TABLE))
    assert capsys.readouterr().out == "a table\n"
