"""The package: what it exports, and that importing it is cheap."""

import json
import subprocess
import sys

import pytest

import desketch
from desketch.core.lazy import lazy


def _modules_after(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(subprocess.check_output([sys.executable, "-c", code])))


def test_exports_are_pinned():
    assert desketch.__all__ == [
        "FAMILIES",
        "Client",
        "DesketchError",
        "Key",
        "PerStep",
        "Run",
        "Sketch",
        "SketchClip",
        "Wire",
        "__version__",
        "draw",
        "federate",
        "join",
        "serve",
    ]
    assert all(getattr(desketch, name) is not None for name in desketch.__all__)
    assert dir(desketch) == sorted(desketch.__all__)


def test_import_is_lazy():
    modules = _modules_after("import desketch")
    assert "torch" not in modules
    assert "numpy" not in modules


@pytest.mark.parametrize("module", ["desketch.keys", "desketch.theory", "desketch.sketches", "desketch.cli.app"])
def test_light_modules_do_not_import_torch(module):
    assert "torch" not in _modules_after(f"import {module}")


def test_a_run_imports_what_few_need_only_when_it_is_used():
    """Graphs, plots and scikit-learn together took longer than a round of the default run."""
    modules = _modules_after("import desketch.api.configured as c; c.prepare(c.RunConfig(clients=2))")
    assert not modules & {"matplotlib", "networkx.classes", "scipy.sparse", "scipy.stats", "sklearn"}


def test_a_lazy_module_is_itself_at_first_use_and_must_exist():
    code = (
        "from desketch.core.lazy import lazy; nx = lazy('networkx'); import networkx; print(nx.Graph is networkx.Graph)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        lazy("no_such_module")


def test_a_sketch_kept_to_the_end_is_no_leak():
    code = (
        "import desketch as ds, torch; R = ds.draw('srht', d=100, b=10, key=ds.Key(0)); "
        "torch.kept = R.desketch(torch.zeros(10, requires_grad=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = desketch.nonsense
