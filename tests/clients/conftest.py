"""The JavaScript client of ``clients/js`` as a fixture: it needs Node, and nothing from the network."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "js"


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
