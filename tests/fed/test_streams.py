"""Randomness that must differ does: batches and rounding by client and by round, R_t by round."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from desketch import Key, draw, wire
from desketch.fed import LocalWork, SketchChannel
from desketch.fed.local import batch_indices, local_update, stream

CALLS = [(client, t) for client in (0, 1, 2) for t in (1, 2, 3)]
WORK = LocalWork(steps=4, eta=0.1, batch=8, seed=1)


def _channel(codec: str) -> SketchChannel:
    return SketchChannel(d=600, b=300, key=Key(3), codec=codec)


def _alone(channel: SketchChannel, g: Tensor, *, client: int, t: int) -> Tensor:
    """What the server reads of one client's update."""
    frames = channel.encode_updates(t, g[None], clients=[client], weights=[1.0])
    return torch.from_numpy(channel.decode_updates(t, {client: frames[0]}).values[0])


def test_every_client_and_every_round_has_batches_of_its_own() -> None:
    drawn = {call: batch_indices(WORK, t=call[1], client=call[0], examples=50) for call in CALLS}
    for one, other in combinations(CALLS, 2):
        assert not torch.equal(drawn[one], drawn[other]), (one, other)
    # the same call repeats itself, and the seed matters
    assert torch.equal(drawn[0, 1], batch_indices(WORK, t=1, client=0, examples=50))
    seeds = [stream(seed, t=1, client=0).integers(2**62) for seed in range(4)]
    assert len(set(seeds)) == 4


def test_an_epoch_shows_every_example_once() -> None:
    work = LocalWork(steps=6, eta=0.1, batch=5, seed=1)
    index = batch_indices(work, t=3, client=2, examples=15)
    assert index.shape == (6, 5)
    for epoch in index.reshape(2, 15):
        assert sorted(epoch.tolist()) == list(range(15))


def test_training_moves_on_through_the_examples(blobs: Any, perceptron: Any) -> None:
    """Two rounds from the same w give two updates: a client whose rounds repeat their batches would give one."""
    model, data = perceptron(), blobs(1)[0]
    one, two, again = (local_update(model, model.flatten(), data, WORK, t=t) for t in (1, 2, 1))
    assert torch.equal(one, again)
    assert not torch.allclose(one, two, rtol=1e-3)


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_rounding_errors_do_not_add_up(codec: str) -> None:
    """The decoded sketch of one vector, minus the sketch: uncorrelated between clients, and between rounds."""
    channel, g = _channel(codec), torch.randn(600, generator=torch.Generator().manual_seed(0))
    errors = {(c, t): _alone(channel, g, client=c, t=t) - channel.sketch_at(t).sketch(g) for c, t in CALLS}
    for one, other in combinations(CALLS, 2):
        a, b = errors[one], errors[other]
        assert abs(float(a @ b)) < 0.35 * float(a.norm() * b.norm()), (one, other)  # six standard deviations


@pytest.mark.parametrize("codec", ["int8", "int4", "sign1"])
def test_the_uniforms_of_a_message_depend_on_client_and_round(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys that reach the codec are all different, the server's too."""
    seen: list[bytes] = []
    encode_batch, encode = wire.encode_batch, wire.encode

    def batch(values: Any, header: Any, *, weights: Any, rounding: Any, **more: Any) -> Any:
        seen.extend(key.bits for key in rounding)
        return encode_batch(values, header, weights=weights, rounding=rounding, **more)

    def single(values: Any, header: Any, *, rounding: Any, **more: Any) -> Any:
        seen.append(rounding.bits)
        return encode(values, header, rounding=rounding, **more)

    monkeypatch.setattr(wire, "encode_batch", batch)
    monkeypatch.setattr(wire, "encode", single)
    channel = _channel(codec)
    for t in (1, 2, 3):
        frames = channel.encode_updates(t, torch.ones(3, 600), clients=[0, 1, 2], weights=[1.0] * 3)
        channel.aggregate(t, dict(enumerate(frames)))
    assert len(seen) == 3 * 4
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("family", ["srht", "countsketch", "gaussian"])
def test_every_round_has_an_r_of_its_own(family: str) -> None:
    channel = SketchChannel(d=40, b=8, key=Key(3), family=family, codec="f32")
    drawn = {t: channel.sketch_at(t).to_dense() for t in (1, 2, 3)}
    for t, R in drawn.items():
        assert np.array_equal(R, draw(family, d=40, b=8, key=Key(3).fold_in("round", t)).to_dense())
        assert np.array_equal(R, channel.sketch_at(t).to_dense())  # out of order, too
    for t, other in combinations(drawn, 2):
        assert not np.allclose(drawn[t], drawn[other])


def test_errors_of_rounds_average_out() -> None:
    """The mean over T rounds of R_tᵀ R_t g comes near g; with one R for all it would stay at sqrt(alpha) |g|."""
    channel, g = SketchChannel(d=128, b=32, key=Key(5), codec="f32"), torch.linspace(-1, 1, 128)
    T, total = 200, torch.zeros(128)
    for t in range(1, T + 1):
        frames = channel.encode_updates(t, g[None], clients=[0], weights=[1.0])
        step = channel.aggregate(t, {0: frames[0]})
        assert step.broadcast is not None
        total += channel.decode_broadcast(t, step.broadcast).vector / T
    one = (channel.sketch_at(1).alpha) ** 0.5
    assert float((total - g).norm() / g.norm()) < 2 * one / T**0.5
