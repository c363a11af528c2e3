"""Every row of the table "what it takes" in docs/python.md is a program that runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "user_programs.py"


def _programs():
    spec = importlib.util.spec_from_file_location("user_programs", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_programs"] = module
    spec.loader.exec_module(module)
    return module


PROGRAMS = _programs()


@pytest.mark.parametrize("name", PROGRAMS.ROWS)
def test_a_program_reaches_its_first_round(name):
    needs = {"bert": "transformers", "gpt2_lora": "peft"}
    if name in needs:
        pytest.importorskip(needs[name])
    torch.manual_seed(0)
    run = PROGRAMS.ROWS[name]()
    assert run.history[0]["participants"] == 4
    assert (run.epsilon is not None) == (name == "private")
    assert 0 < PROGRAMS.lines(PROGRAMS.ROWS[name]) <= 8
