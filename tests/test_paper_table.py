"""docs/paper.md: every statement of the paper has a row, and whatever a row names exists."""

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from desketch.cli.app import cli

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "paper.md"
STATEMENTS = Path(__file__).with_name("paper_statements.txt").read_text(encoding="utf-8").splitlines()
PAPER = next((p for parent in ROOT.parents if (p := parent / "shared" / "paper.tex").exists()), None)

KINDS = "definition|lemma|theorem|corollary|remark|fact|assumption|algorithm|claim|proposition|table"
VERDICTS = {
    "holds",
    "holds with another constant",
    "holds in part",
    "false as printed, corrected",
    "background only",
    "taken as printed",
    "taken, corrected",
}


def table(page):
    """The rows of the page, each a list of six cells."""
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]


ROWS = table(PAGE.read_text(encoding="utf-8"))
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("` "))


def quoted(cell):
    """What a cell names; "-" names nothing."""
    return re.findall(r"`([^`]+)`", cell)


def statements(tex):
    """The label of every statement, in order; one without a label is called after its kind and section."""
    found, section = [], ""
    for match in re.finditer(rf"\\label\{{(sec:[^}}]*)\}}|\\begin\{{({KINDS})(\*?)\}}", tex):
        section = match[1] or section
        if match[2]:
            body = tex[match.end() : tex.index(rf"\end{{{match[2]}{match[3]}}}", match.end())]
            label = re.search(r"\\label\{((?!eq)[^}]*)\}", body)
            found.append((label and label[1], match[2], section))
    alike = Counter((kind, section) for label, kind, section in found if not label)
    seen = Counter()
    for label, kind, section in found:
        if not label:
            seen[kind, section] += 1
            number = f" {seen[kind, section]}" if alike[kind, section] > 1 else ""
            label = f"{kind}{number} of {section}"
        yield label


@cache
def nodes(path):
    """``name`` and ``Class::name`` of every test in a file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names.add(getattr(node, "name", ""))
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
    return {name for name in names if name.split("::")[-1].startswith("test_")}


def resolve(name):
    """The object of a dotted name: the longest prefix that is a module, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"nothing to import in {name}")


def test_every_statement_has_exactly_one_row_in_the_papers_order():
    labels = [quoted(row[0])[0] for row in ROWS]
    assert [label for label in labels if not label.startswith("text:")] == STATEMENTS
    assert len(set(labels)) == len(labels)


@pytest.mark.skipif(PAPER is None, reason="the paper's source is not beside the repository")
def test_the_committed_list_is_the_papers():
    assert list(statements(PAPER.read_text(encoding="utf-8"))) == STATEMENTS


def test_statements_are_found_with_and_without_labels():
    tex = r"""\section{A}\label{sec:a} \begin{lemma}[x]\label{lem:x} \begin{align}\label{eq:no} \end{align} \end{lemma}
    \begin{remark} one \end{remark} \begin{remark} two \end{remark} \begin{fact} \label{eq:no2} \end{fact}
    \begin{theorem}\label{thm:y} \begin{table}\label{tab:t}\end{table} \end{theorem}
    \begin{table*}\label{tab:u}\end{table*}"""
    expected = ["lem:x", "remark 1 of sec:a", "remark 2 of sec:a", "fact of sec:a", "thm:y", "tab:t", "tab:u"]
    assert list(statements(tex)) == expected


@each_row
def test_a_row_is_complete_and_its_verdict_is_one_of_the_list(row):
    assert len(row) == 6
    _, says, code, tests, reach, verdict = row
    assert says
    word, _, note = verdict.removeprefix("**").partition("**")
    assert word in VERDICTS
    assert note or word not in ("holds in part", "false as printed, corrected", "taken, corrected")
    assert quoted(tests) or re.fullmatch(r"not checked: .{20,}", tests)
    assert (code == "-") == (not quoted(code))
    assert (reach == "-") == (not quoted(reach))


@each_row
def test_its_files_and_objects_exist(row):
    for name in quoted(row[2]):
        path, _, attribute = name.partition(":")
        assert (ROOT / "src/desketch" / path).is_file()
        module = ".".join(("desketch", *Path(path).with_suffix("").parts))
        assert getattr(import_module(module), attribute).__module__ == module


@each_row
def test_its_tests_exist(row):
    for name in quoted(row[3]):
        path, _, node = name.partition("::")
        assert node in nodes(ROOT / "tests" / path)


@each_row
def test_its_commands_options_and_names_exist(row):
    for name in quoted(row[4]):
        words = name.split()
        if len(words) == 1:
            resolve(name)
            continue
        command = cli.get_command(click.Context(cli), words[1])
        assert words[0] == "desketch"
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(words[2:]) <= options


@each_row
def test_labels_it_refers_to_have_rows(row):
    known = {quoted(other[0])[0] for other in ROWS}
    references = [word for cell in (row[1], row[5]) for word in quoted(cell)]
    assert [word for word in references if re.match(r"[a-z]+:", word) and word not in known] == []
