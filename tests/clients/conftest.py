"""The JavaScript client of ``clients/js`` as a fixture: it needs Node, and nothing from the network."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "js"
_BROWSERS = Path(__file__).parents[1] / "report" / "conftest.py"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("browsers", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


browser = _module(_BROWSERS).browser  # a headless Chromium


@pytest.fixture
def mosquitto() -> str:
    """The path of mosquitto; tests that need it skip where it is missing."""
    from desketch.errors import RunError
    from desketch.integrations.mqtt import broker

    try:
        return broker.mosquitto()
    except RunError as error:
        pytest.skip(f"run tests/integrations/mqtt/install_mosquitto.sh as root: {error}")


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed: the client in clients/js runs in Node 20 or a browser")
    return found


@pytest.fixture(scope="session")
def ask(node: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Put questions to the client, all in one process, and return its answers."""

    def answers(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        done = subprocess.run(
            [node, CLIENT / "test" / "answer.mjs"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return answers
