"""Docs run: the code of README, tutorial and how-tos, the notebooks, and the examples in docstrings."""

import doctest
import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
PAGES = ["README.md", "docs/tutorial.md", pytest.param("docs/lora.md", marks=pytest.mark.slow)]
SPOKEN = [
    "desketch.keys",
    "desketch.sketches",
    "desketch.wire.settings",
    "desketch.privacy.settings",
    "desketch.api.client",
    "desketch.api.training",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page):
    """Every block in turn, in one program; rounds are cut, since learning is tested elsewhere."""
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))
    code = re.sub(r"rounds=80\b", "rounds=3", re.sub(r"rounds=(60|40)\b", "rounds=2", code))
    assert "federate" in code
    exec(compile(code, page, "exec"), {"__name__": "page"})


def hurried(path):
    """The notebook with the small settings that it names itself."""
    code, cut = re.subn(
        r"^(\w+ = )\S+  # in a hurry: (\S+)$", r"\1\2", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert cut > 0, f"{path.name} names no small settings"
    return code.replace("plt.show()", "assert plt.gcf().axes")


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem, marks=pytest.mark.slow) for p in NOTEBOOKS])
def test_a_notebook_runs(path):
    exec(compile(hurried(path), path.name, "exec"), {"__name__": "notebook"})


def dense(text):
    """Without blank lines, which formatters of Python and of Markdown set differently."""
    return re.sub(r"\n\s*\n", "\n", text)


def test_there_are_notebooks_and_each_has_its_page():
    assert len(NOTEBOOKS) >= 4
    for path in NOTEBOOKS:
        page = path.with_suffix(".md").read_text(encoding="utf-8")
        cells = re.split(r"^# %%(?: \[markdown\])?\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        code = [cell.strip() for cell in cells if cell.strip() and not cell.lstrip().startswith("# ")]
        stale = [cell.splitlines()[0] for cell in code if dense(cell) not in dense(page)]
        assert stale == [], f"{path.stem}.md is behind {path.name}: run `make notebooks`"
        assert "Traceback" not in page
        assert all((path.parent / name).is_file() for name in re.findall(r"!\[figure\]\(([^)]+)\)", page))


@pytest.mark.parametrize("module", SPOKEN)
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(
        importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert found.attempted > 0
    assert found.failed == 0
