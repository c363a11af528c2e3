"""Weak guarantees, missing randomness and runs in which nothing was used are loud, before or instead of a result."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

import desketch as ds
from desketch.api import configured as command
from desketch.errors import PrivacyError, PrivacyWarning, RunError
from desketch.fed import run
from desketch.fed.client import NOT_FINITE
from desketch.privacy.cautions import warn_of_weak_privacy
from desketch.tasks import RunConfig, prepare

SMALL = {"model": "softmax", "clients": 4, "local_steps": 1, "partition": "iid", "rounds": 2, "b": 64}
CLIENT = {"mechanism": "sketch-clip", "clip": 1.0}


def setup(**dp):
    return prepare(RunConfig(**SMALL, dp={**CLIENT, **dp}))


def federate(**settings):
    clients = [ds.Client(torch.zeros(8, 64), torch.zeros(8, dtype=torch.long)) for _ in range(4)]
    loss, privacy = torch.nn.functional.cross_entropy, ds.SketchClip(clip=1.0, **settings)
    return ds.federate(torch.nn.Linear(64, 10), clients, rounds=2, loss=loss, privacy=privacy, wire=ds.Wire(b=64))


@pytest.mark.parametrize("entrance", [lambda **dp: setup(**dp).privacy(), federate], ids=["configuration", "federate"])
@pytest.mark.parametrize(
    ("dp", "words"),
    [
        ({"delta": 0.25, "noise_multiplier": 8.0}, "1/N for the 4 clients"),
        ({"delta": 1e-3, "epsilon": 11.0}, "epsilon = 11"),
        ({"delta": 1e-3, "noise_multiplier": 0.5}, "above 10"),  # no budget was named, but all T rounds will spend it
    ],
)
def test_a_guarantee_that_says_little_is_warned_of(entrance, dp, words):
    with pytest.warns(PrivacyWarning, match=words):
        entrance(**dp)


def test_a_strategy_made_by_hand_is_warned_of_too():
    strategy = pytest.importorskip("desketch.integrations.flower").SketchStrategy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        privacy = setup(delta=0.25, epsilon=11.0).privacy()
    with pytest.warns(PrivacyWarning) as said:
        strategy(privacy=privacy, clients=4, fraction_evaluate=0.0)
    assert len(said) == 2


def test_examples_are_counted_over_all_clients():
    dp = {"mechanism": "per-step", "delta": 1e-3, "clip": 1.0, "noise_multiplier": 8.0}
    with pytest.warns(PrivacyWarning, match="1/N for the 1294 examples"):
        prepare(RunConfig(**SMALL, dp=dp)).privacy()


@pytest.mark.parametrize(("units", "delta", "epsilon"), [(100, 0.0099, 10.0), (None, 0.5, None)])
def test_what_is_in_order_is_not_warned_of(units, delta, epsilon):
    warn_of_weak_privacy(unit="client", units=units, delta=delta, epsilon=epsilon)  # warnings are errors here


def broken(size):
    raise OSError("no entropy")


@pytest.mark.parametrize("source", [broken, bytes], ids=["fails", "constant"])
@pytest.mark.parametrize("dp", [CLIENT, {"mechanism": "per-step", "clip": 1.0}], ids=["client", "example"])
def test_without_randomness_nothing_starts(source, dp, tmp_path, monkeypatch):
    config = RunConfig(**SMALL, dp={**dp, "delta": 1e-4, "noise_multiplier": 8.0})
    with monkeypatch.context() as patched:
        patched.setattr(os, "urandom", source)
        with pytest.raises(PrivacyError, match="nothing was released"):
            command.train_run(config, out=tmp_path / "run")
        with pytest.raises(PrivacyError, match="nothing was released"):
            federate(delta=1e-4, noise_multiplier=8.0)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.json*"))


def test_randomness_that_ends_in_the_middle_ends_the_run(monkeypatch):
    federation = setup(delta=1e-4, noise_multiplier=8.0).federation()
    run(federation, rounds=1)
    digest = federation.digest()
    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(PrivacyError, match="nothing was released"):
        run(federation, rounds=2)
    assert federation.digest() == digest


def test_a_run_in_which_all_updates_were_refused_is_no_result(tmp_path):
    """Through the command (exit code 2), and it leaves its folder for whoever looks for the reason."""
    config = RunConfig(**SMALL, eta_local=1e38)
    with pytest.raises(RunError, match=NOT_FINITE.split(";")[0]):
        command.train_run(config, out=tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").exists()
