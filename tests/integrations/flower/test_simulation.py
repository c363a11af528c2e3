"""Flower's Ray simulation gives the weights of the in-process engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from desketch.fed import run
from desketch.tasks import RunConfig, prepare

SETTINGS = {"task": "digits", "model": "mlp:32", "clients": 4, "fraction": 0.5, "rounds": 4, "codec": "int4"}


@pytest.mark.slow
def test_the_simulation_has_the_weights_of_the_in_process_engine(tmp_path):
    flags = [f"--{name}={value}" for name, value in SETTINGS.items()]
    command = [sys.executable, "-m", "desketch", "train", "--engine", "flower-sim", "--out", str(tmp_path), *flags]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    federation = prepare(RunConfig(**SETTINGS)).federation()
    run(federation, rounds=4)
    assert json.loads(done.stdout)["replica_digest"] == federation.server.replica.digest()
