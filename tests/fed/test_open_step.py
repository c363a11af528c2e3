"""The step known in advance: its formula, when `federate` takes it, and that a word of the user's turns it off."""

from __future__ import annotations

import math

import pytest
import torch

import desketch as ds
from desketch.api.parties import Parties, Settings
from desketch.fed.open_step import BETA, adaptive, open_step

UNTOUCHED = {
    "local_steps": 20,
    "batch_size": 8,
    "eta_local": 0.1,
    "wire": ds.Wire(compression=4),
    "privacy": None,
    "server_optimizer": "momentum",
    "eta_global": "auto",
    "momentum": None,
    "client_momentum": "auto",
    "average": 10,
    "fraction": 1.0,
    "seed": 0,
    "statistics": "refuse",
    "robust": None,
}


def optimizer_of(make, clients=4, **changed):
    net, x = torch.nn.Linear(15, 16), torch.randn(40, 15)
    parts = [ds.Client(x, torch.randint(16, (40,))) for _ in range(clients)]
    loss = torch.nn.functional.cross_entropy
    settings = Settings(**UNTOUCHED | changed)
    parties = Parties(net, parts, settings, loss=loss, optimizer=make, evaluate=None)
    return parties.federation(rounds=3, evaluate_every=1).optimizer


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def test_the_step_is_the_printed_one():
    omega = math.pi / 2 - 1
    step = open_step(ds.Wire(compression=10), d=10_000, clients=4)
    gain = 1 / (1 + 0.3 * 10 * (1 + omega) * (1 + omega / 4))
    assert (step.server_optimizer, step.beta) == ("nesterov", BETA)
    assert step.eta_global == pytest.approx(gain / 0.3)
    assert open_step(ds.Wire(compression=1, codec="f32"), d=100, clients=1).eta_global == pytest.approx(1 / 1.3 / 0.3)


def test_adam_clients_get_it_and_gradient_steps_do_not():
    chosen = optimizer_of(adamw)
    assert (chosen.name, chosen.beta, chosen.auto) == ("nesterov", BETA, None)
    assert chosen.eta == pytest.approx(open_step(ds.Wire(compression=4), d=256, clients=4).eta_global)
    for make in (None, lambda p: torch.optim.SGD(p, lr=0.1)):
        learned = optimizer_of(make)
        assert learned.name == "momentum"
        assert learned.auto is not None


@pytest.mark.parametrize(
    "word",
    [{"eta_global": 0.5}, {"momentum": 0.5}, {"server_optimizer": "adam"}, {"client_momentum": 0.8}],
    ids=str,
)
def test_a_word_about_the_step_turns_it_off(word):
    assert optimizer_of(adamw, **word).name != "nesterov"


def test_half_of_the_clients_in_a_round_are_counted():
    half = optimizer_of(adamw, clients=8, fraction=0.5)
    assert half.eta == pytest.approx(open_step(ds.Wire(compression=4), d=256, clients=4).eta_global)


def test_a_client_with_a_loop_of_its_own_says_nothing_about_its_optimiser():
    net = torch.nn.Linear(15, 16)
    parts = [ds.Client(train=lambda model: 1.0)] * 2
    parties = Parties(net, parts, Settings(**UNTOUCHED), loss=None, optimizer=adamw, evaluate=None)
    assert not parties._adaptive


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
