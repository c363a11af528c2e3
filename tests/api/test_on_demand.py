"""`federate` over clients that are made when they are asked for: the same run, and nobody else is made."""

from __future__ import annotations

import pytest
import torch

import desketch as ds
from desketch.core.on_demand import OnDemand
from desketch.errors import ConfigError, InputError


def _client(c: int) -> ds.Client:
    g = torch.Generator().manual_seed(c)
    return ds.Client(torch.randn(8, 5, generator=g), torch.randint(3, (8,), generator=g))


def _run(clients, **settings):
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    fixed = {"loss": torch.nn.functional.cross_entropy, "rounds": 2, "local_steps": 2, "fraction": 0.2}
    return ds.federate(model, clients, wire=ds.Wire(compression=2, codec="int8"), **fixed | settings)


def test_the_run_is_that_of_a_list_and_only_the_asked_are_made():
    made = []

    def make(c):
        made.append(c)
        return _client(c)

    lazy = _run(OnDemand(20, make))
    listed = _run([_client(c) for c in range(20)])
    assert lazy.digest == listed.digest
    assert lazy.bytes_up == listed.bytes_up
    assert sum(c != 0 for c in made) <= 2 * 4  # each once a round, its weight included; the first is looked at


def test_what_cannot_be_had_of_clients_not_yet_made_is_refused():
    with pytest.raises(ConfigError, match="give the clients as a list"):
        _run(OnDemand(20, _client), statistics="local")
    mixed = OnDemand(20, lambda c: _client(c) if c == 0 else ds.Client(train=lambda model: 1))
    with pytest.raises(InputError, match=r"clients\[\d+\] is Client\(train=.*must all be"):
        _run(mixed, fraction=1.0)
