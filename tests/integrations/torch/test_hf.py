"""Trainer with the outer step: a tiny random GPT-2 and its LoRA adapters, on two gloo ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from desketch import Key
from desketch.errors import RunError
from desketch.integrations.torch.hf import OuterCallback

from .gloo import run

WORKER = Path(__file__).with_name("hf_worker.py")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return run(WORKER, tmp_path_factory.mktemp("hf"), 2, {"full": {"lora": False}, "lora": {"lora": True}})


@pytest.mark.parametrize("name", ["full", "lora"])
def test_trainer_ends_with_equal_replicas_and_resumes_exactly(pair, name):
    first, second = (rank[name] for rank in pair)
    assert first["stats"].rounds == 3
    assert first["stats"].sent == second["stats"].received > 0
    for parameter, value in first["after"].items():
        assert torch.equal(value, second["after"][parameter]), parameter
        assert torch.equal(value, first["resumed"][parameter]), parameter
        moved = not torch.equal(value, first["before"][parameter])
        assert moved is (parameter in first["trainable"]), parameter


def test_lora_sends_the_adapters_alone(pair):
    full, lora = pair[0]["full"], pair[0]["lora"]
    assert all("lora_" in name for name in lora["trainable"])
    assert lora["stats"].sent < full["stats"].sent


def test_a_trainer_that_averages_every_gradient_itself_is_refused():
    with pytest.raises(RunError, match="without torchrun"):
        OuterCallback(key=Key(0)).on_train_begin(SimpleNamespace(world_size=2), SimpleNamespace(), SimpleNamespace())
