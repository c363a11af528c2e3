"""Docs run: the code of README, tutorial and how-tos, the notebooks, and the examples in docstrings."""

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import desketch as ds
from desketch.integrations.processes import free_port

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
PAGES = ["README.md", "docs/tutorial.md", pytest.param("docs/lora.md", marks=pytest.mark.slow)]
SPOKEN = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "src").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_names_that_the_text_of_a_page_imports_are_there():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    told = re.findall(r"`from (desketch[\w.]*) import (\w+)`", pages)
    assert ("desketch.fed", "Observer") in told  # docs/python.md: what a callback may be
    for module, name in told:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page):
    """Every block in turn, in one program; rounds are cut, since learning is tested elsewhere."""
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))
    code = re.sub(r"rounds=80\b", "rounds=3", re.sub(r"rounds=(60|40)\b", "rounds=2", code))
    assert "federate" in code
    exec(compile(code, page, "exec"), {"__name__": "page"})


def bound(function):
    """A stand-in that takes what the function takes and does nothing: for blocks that need other machines."""
    return lambda *args, **kwargs: inspect.signature(function).bind(*args, **kwargs)


def tokens(vocabulary=16, batches=20):
    """A model that answers as those of Hugging Face do, and data for it."""

    class Model(torch.nn.Linear):
        def forward(self, batch):
            return SimpleNamespace(loss=super().forward(batch).square().mean())

    model = Model(vocabulary, vocabulary)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loader": torch.ones(batches, 2, 16)}


def examples():
    """A model and the data of two clients."""
    x, y = torch.randn(20, 64), torch.arange(20) % 30
    return {"model": torch.nn.Linear(64, 30), "x": x, "y": y, "parts": [(x, y), (x, y)], "cross_entropy": None}


def distant():
    """`examples`, with parties that are only asked whether they would take these arguments."""
    parties = SimpleNamespace(serve=bound(ds.serve), join=bound(ds.join), Client=ds.Client, PerStep=ds.PerStep)
    return examples() | {"ds": parties}


def wrapped():
    """A network, and its DDP wrapper, to hook; one step has been taken when the note is asked for."""
    torch.distributed.init_process_group("gloo")

    class Hooked(DistributedDataParallel):
        def register_comm_hook(self, state, hook):
            super().register_comm_hook(state, hook)
            self(torch.ones(1, 40)).sum().backward()

    return {"net": torch.nn.Linear(40, 10), "DistributedDataParallel": Hooked}


def flower():
    """What the Flower app of a user has imported and defined."""
    from flwr.clientapp import ClientApp

    from desketch.integrations.flower import SketchMod

    return {"ClientApp": ClientApp, "SketchMod": SketchMod, "Net": examples, "torch": torch}


# page -> (what its reader has by then, how many of its blocks are run; the rest need torchft or transformers)
BLOCKS = {"ddp": (wrapped, 2), "flower": (flower, 1), "mqtt": (distant, 1), "python": (examples, 1),
          "training": (dict, 1), "transformers": (tokens, 1)}  # fmt: skip


@pytest.mark.parametrize("page", BLOCKS)
def test_the_python_of_a_how_to_runs(page, monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}.items():
        monkeypatch.setenv(name, str(value))
    given, count = BLOCKS[page]
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) >= count
    try:
        names = {"__name__": "page", **given()}
        for code in found[:count]:
            exec(compile(re.sub(r"rounds=(60|40)\b", "rounds=1", code), page, "exec"), names)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


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
