"""The small federation (``tests/fed/small_federation.py``) and the command line as fixtures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fed"))

from small_federation import blobs_fixture, build, log, perceptron_fixture

__all__ = ["blobs_fixture", "build", "log", "perceptron_fixture"]


@pytest.fixture(scope="session")
def desketch():
    """``desketch(*argv, **faults)`` runs the command in a process of its own, see ``zygote.py``."""
    command = [sys.executable, str(Path(__file__).parent / "zygote.py")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as zygote:
        assert zygote.stdout.readline() == "ready\n"

        def run(*argv, **faults):
            order = {"argv": list(map(str, argv)), **faults}
            zygote.stdin.write(json.dumps(order) + "\n")
            zygote.stdin.flush()
            said = json.loads(zygote.stdout.readline())
            return said | {"operations": int(said["operations"] or 0)}

        yield run
        zygote.stdin.close()
