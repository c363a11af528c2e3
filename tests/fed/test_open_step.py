"""The step known in advance: its formula, and which optimisers are of Adam's kind."""

from __future__ import annotations

import math

import pytest
import torch

import desketch as ds
from desketch.fed.open_step import BETA, adaptive, open_step


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def test_the_step_is_the_printed_one():
    omega = math.pi / 2 - 1
    step = open_step(ds.Wire(compression=10), d=10_000, clients=4)
    gain = 1 / (1 + 0.3 * 10 * (1 + omega) * (1 + omega / 4))
    assert (step.server_optimizer, step.beta) == ("nesterov", BETA)
    assert step.eta_global == pytest.approx(gain / 0.3)
    assert open_step(ds.Wire(compression=1, codec="f32"), d=100, clients=1).eta_global == pytest.approx(1 / 1.3 / 0.3)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (adamw, True),
        (lambda p: torch.optim.RMSprop(p), True),
        (lambda p: torch.optim.SGD(p, lr=0.1), False),
        (lambda p: torch.optim.Adamax(p), False),
    ],
)
def test_what_is_of_adams_kind(make, expected):
    assert adaptive(make([torch.nn.Parameter(torch.zeros(2))])) is expected
