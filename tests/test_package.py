"""The package: what it exports, and that importing it is cheap."""

import json
import subprocess
import sys

import pytest

import desketch


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


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = desketch.nonsense
