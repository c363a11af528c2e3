"""One bad client of 20 through `federate`, and the robust setting at every entrance: applied or refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import desketch as ds
from desketch.errors import ConfigError
from desketch.fed.robust import Krum, parse_rule
from desketch.tasks import RunConfig, prepare

PRIVATE = {"mechanism": "sketch-clip", "delta": 1e-3, "clip": 1.0, "noise_multiplier": 1.0}


@dataclass(frozen=True)
class Learner:
    """Five softmax steps on its own digits, multiplied by ``times``."""

    client: int
    x: torch.Tensor
    y: torch.Tensor
    times: float = 1.0

    def update(self, w, t):
        v, hot = w.clone(), nn.functional.one_hot(self.y, 10)
        for _ in range(5):
            slope = ((self.x @ v[:640].view(10, 64).T + v[640:]).softmax(1) - hot) / len(self.y)
            v -= 0.5 * torch.cat([(slope.T @ self.x).flatten(), slope.sum(0)])
        return self.times * (v - w), float(len(self.y))


def learners(**bad):
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    honest = [Learner(c, x[:1400][c::20], y[:1400][c::20]) for c in range(20)]
    return [replace(one, **bad) if one.client == 7 and bad else one for one in honest], (x[1400:], y[1400:])


def accuracy(robust=None, **bad):
    torch.manual_seed(0)
    clients, (x, y) = learners(**bad)
    run = ds.federate(
        nn.Linear(64, 10),
        clients,
        rounds=40,
        wire=ds.Wire(compression=4),
        robust=robust,
        evaluate=lambda model: {"accuracy": float((model(x).argmax(1) == y).float().mean())},
        evaluate_every=40,
        progress=False,
    )
    return run.history[-1]["accuracy"], run.history


def test_one_client_times_minus_100_stays_within_a_point():
    honest, _ = accuracy()
    attacked, rows = accuracy(times=-100.0)
    assert honest > 0.85
    assert attacked > honest - 0.01
    assert all(list(row["refused"]) == [7] and "norm: got" in row["refused"][7] for row in rows)
    assert accuracy("none", times=-100.0)[0] < 0.5


def test_a_rule_may_be_an_object_or_its_text():
    by_text, _ = accuracy("krum:num_malicious_nodes=2", times=-1.0)
    by_object, rows = accuracy(Krum(num_malicious_nodes=2), times=-1.0)
    assert by_text == by_object > 0.8
    assert all("not selected by krum" in how for row in rows for how in row["limited"].values())
    assert all(row["participants"] == 18 for row in rows)


def test_a_configuration_applies_its_rule_or_refuses_it():
    config = RunConfig(robust="trimmed-mean:beta=0.1", clients=4, model="softmax")
    federation = prepare(config).federation()
    assert federation.channel.aggregator.rule == parse_rule("trimmed-mean:beta=0.1")
    assert federation.channel.aggregator.sizes == {c: len(federation.clients[c].data.y) for c in range(4)}
    assert prepare(RunConfig(clients=4, model="softmax")).federation().channel.aggregator.rule == parse_rule(None)
    assert config.identity() != RunConfig(clients=4, model="softmax").identity()
    for settings, says in (
        ({"robust": "median"}, "robust: got 'median'"),
        ({"robust": "rfa", "topology": "ring"}, "robust rules need a server"),
        ({"robust": "rfa", "dp": PRIVATE}, "client-level privacy"),
        ({"robust": "krum:num_malicious_nodes=9"}, "needs 21 updates in a round, 20 clients"),
    ):
        with pytest.raises(ConfigError, match=says):
            RunConfig(**settings)
    RunConfig(robust="none", topology="ring")
    RunConfig(robust="none", dp=PRIVATE)
    RunConfig(robust="rfa", dp={**PRIVATE, "mechanism": "per-step"})


def test_federate_refuses_what_no_round_could_apply():
    clients = learners()[0][:4]
    with pytest.raises(ConfigError, match="needs 5 updates"):
        ds.federate(nn.Linear(64, 10), clients, rounds=1, robust=Krum(num_malicious_nodes=1))
    with pytest.raises(ConfigError, match="client-level privacy"):
        ds.federate(
            nn.Linear(64, 10),
            clients,
            rounds=1,
            robust="rfa",
            privacy=ds.SketchClip(clip=1.0, delta=1e-3, noise_multiplier=1.0, unit="client"),
        )
