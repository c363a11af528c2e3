"""The examples run as written, and learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_my_tensors():
    assert load("my_tensors").main() > 0.88


def test_my_loader(tmp_path):
    assert load("my_loader").main(rounds=25, out=tmp_path / "run") < 4
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_my_loop():
    assert load("my_loop").main() < 0.05


def test_my_private_run(tmp_path):
    epsilon = load("my_private_run").main(rounds=10, out=tmp_path)
    assert epsilon == pytest.approx(8.0, rel=0.05)
