"""The shares of signal: what the estimate tends to, that a run tells them, that a private run does not."""

from __future__ import annotations

import json

import pytest
import torch

from desketch import draw
from desketch.api.configured import train_run
from desketch.fed.signal import Signal, first_rounds, measure_signal, sentence
from desketch.keys import Key
from desketch.tasks import RunConfig
from desketch.wire.rows import Decoded

D, B, N = 2048, 256, 8


def _rounds(noise: float, *, weights: torch.Tensor, rounds: int = 60) -> tuple[Signal, float]:
    """The mean shares of clients that send mu + noise, and the mean cos² of de-sketched steps with mu."""
    g = torch.Generator().manual_seed(1)
    found, cosines = [], []
    for t in range(rounds):
        mu = torch.randn(D, generator=g)
        mu /= torch.linalg.vector_norm(mu)
        rows = mu + noise * torch.randn(N, D, generator=g) / D**0.5
        R = draw("srht", d=D, b=B, key=Key(3).fold_in("round", t))
        s = R.sketch(rows)
        found.append(measure_signal(Decoded(s.numpy()), weights, d=D))
        u = R.desketch(((weights / weights.sum()).to(s.dtype)[:, None] * s).sum(dim=0))
        cosines.append(float(torch.dot(u, mu) ** 2 / torch.dot(u, u)))
    shares = [(one.signal_share, one.step_share) for one in found if one]
    assert len(shares) == rounds
    signal, step = (sum(column) / rounds for column in zip(*shares, strict=True))
    return Signal(signal, step), sum(cosines) / rounds


@pytest.mark.parametrize("weights", [torch.ones(N), torch.arange(1.0, N + 1)], ids=["equal", "unequal"])
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_the_shares_are_those_of_what_was_put_in(noise, weights):
    found, cosine = _rounds(noise, weights=weights)
    assert found.signal_share == pytest.approx(1 / (1 + noise**2), abs=0.03)
    assert found.step_share == pytest.approx(cosine, rel=0.15)


def test_clients_without_anything_in_common_have_no_signal():
    g = torch.Generator().manual_seed(2)
    shares = [measure_signal(Decoded(torch.randn(N, B, generator=g).numpy()), torch.ones(N), d=D) for _ in range(100)]
    assert sum(one.signal_share for one in shares if one) / 100 == pytest.approx(0, abs=0.005)


def test_one_client_or_nothing_sent_has_no_share():
    assert measure_signal(Decoded(torch.ones(1, B).numpy()), torch.ones(1), d=D) is None
    assert measure_signal(Decoded(torch.zeros(N, B).numpy()), torch.ones(N), d=D) is None


def test_only_the_first_rounds_count_and_negative_estimates_are_told_as_none():
    rows = [{"round": t, "signal_share": 0.2 if t <= 10 else 9.0, "step_share": 0.01} for t in range(1, 30)]
    found = first_rounds([*rows, {"round": 3, "signal_share": None}, {"round": 4}])
    assert found is not None
    assert found.signal_share == pytest.approx(0.2)
    assert "20 % of what clients sent" in sentence(found)
    assert "1 % of a de-sketched step" in sentence(found)
    assert sentence(Signal(-0.01, -0.1)).count(" 0 % of") == 2
    assert first_rounds([{"round": 1}]) is None


def test_a_run_tells_its_shares_and_a_private_one_does_not(tmp_path):
    base = {"task": "digits", "model": "softmax", "clients": 4, "rounds": 3}
    open_run = train_run(RunConfig(**base), out=tmp_path / "open", progress=False)
    assert 0 < open_run["signal_share"] < 1
    assert 0 < open_run["step_share"] < open_run["signal_share"] * 4
    for name, dp in {
        "clip": {"mechanism": "sketch-clip", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
        "step": {"mechanism": "per-step", "clip": 1.0, "noise_multiplier": 6.0, "delta": 1e-5},
    }.items():
        private = train_run(RunConfig(**base, dp=dp), out=tmp_path / name, progress=False)
        assert (private["signal_share"], private["step_share"]) == (None, None)
        rows = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        assert {json.loads(row).get("signal_share") for row in rows} == {None}
