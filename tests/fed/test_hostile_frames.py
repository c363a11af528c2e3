"""No bytes of a client end a run, make w anything but numbers, or cost an honest client its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hostile_frames import TamperedChannel, honest_frames, hostile_frame
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import Log, perceptron

from desketch import Key, wire
from desketch.core.tree import pack_tree
from desketch.fed import OPTIMIZERS, Federation, Server, SketchChannel, make_optimizer, run
from desketch.fed.replica import LARGEST_KEPT
from desketch.wire import CODEC_TABLE

RULES = ["none", "norm-bound", "rfa", "krum:num_malicious_nodes=2", "centred-clip", "trimmed-mean"]
D, HONEST, LIARS = 300, 6, (6, 7)


def server(*, codec: str, rule: str | None, optimizer: str = "momentum", eta_global: Any = "auto") -> Server:
    channel = SketchChannel(d=D, b=40, key=Key(4), codec=codec, robust=rule)
    w0 = torch.linspace(-1, 1, D)
    return Server(w0, optimizer=make_optimizer(optimizer, eta_global=eta_global), channel=channel)


def usable(one: Server) -> bool:
    kept = [one.replica.w, *one.replica.optimizer.tensors.values(), torch.tensor(one.replica.optimizer.eta)]
    return all(bool((part.abs() <= LARGEST_KEPT).all()) for part in kept)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    codec=st.sampled_from(list(CODEC_TABLE)),
    rule=st.sampled_from(RULES),
    optimizer=st.sampled_from(list(OPTIMIZERS)),
)
def test_w_stays_finite_and_honest_clients_count(seed: int, codec: str, rule: str, optimizer: str) -> None:
    one, rng = server(codec=codec, rule=rule, optimizer=optimizer), np.random.default_rng(seed)
    channel = one.replica.channel
    assert isinstance(channel, SketchChannel)
    for t in range(1, 5):
        updates = 0.1 * torch.randn(HONEST, D, generator=torch.Generator().manual_seed(seed % 10**9 + t)) + 0.1
        frames = dict(honest_frames(channel, t, updates)) | {c: hostile_frame(channel, t, rng) for c in LIARS}
        step = one.step(frames)
        assert usable(one)
        assert set(step.refused) <= set(LIARS)
        assert all(step.refused.values())
        if step.void is None:
            known = set(step.participants) | set(step.limited)
            assert set(range(HONEST)) <= known  # Krum says whom it did not select
            assert known | set(step.refused) == {*range(HONEST), *LIARS}
        else:
            assert rule == "none"  # behind the bound nothing is large enough to lose a round
            assert step.broadcast is None
    assert one.replica.version == 4


@pytest.mark.parametrize("codec", ["f32", "sign1"])
@pytest.mark.parametrize("rule", [None, "none"])
def test_one_frame_of_scale_1e38_and_weight_3e38_is_refused_by_name(codec: str, rule: str | None) -> None:
    one, clean = server(codec=codec, rule=rule), server(codec=codec, rule=rule)
    channel = one.replica.channel
    assert isinstance(channel, SketchChannel)
    frames = dict(honest_frames(channel, 1, torch.ones(HONEST, D)))
    head = replace(channel.header(1, "update"), weight=3e38)
    scale = np.full(1 if codec == "sign1" else channel.b, 1e38, "<f4").tobytes()
    body = scale + bytes(5) if codec == "sign1" else scale
    step = one.step({**frames, 99: wire.shorten(head, body)})
    clean.step(frames)
    assert list(step.refused) == [99]
    assert "norm: got" in step.refused[99] or "not finite" in step.refused[99]
    assert step.participants == tuple(range(HONEST))
    assert torch.equal(one.replica.w, clean.replica.w)


def test_a_broadcast_that_would_lose_w_leaves_everything_as_it_was() -> None:
    one = server(codec="f32", rule="none", optimizer="adam", eta_global=1e20)
    channel = one.replica.channel
    assert isinstance(channel, SketchChannel)
    one.step(honest_frames(channel, 1, torch.ones(HONEST, D)))
    before = pack_tree({**one.replica.state_dict(), "version": 0})
    one.replica.optimizer.eta = 1e31  # the next step is one too long
    step = one.step(honest_frames(channel, 2, torch.ones(HONEST, D)))
    one.replica.optimizer.eta = 1e20
    assert (step.broadcast, step.participants) == (None, ())
    assert step.void is not None
    assert "round 2 takes w to" in step.void
    assert one.replica.version == 2
    assert pack_tree({**one.replica.state_dict(), "version": 0}) == before
    assert [t for t, _ in one.catch_up(0).broadcasts] == [1]
    assert one.step(honest_frames(channel, 3, torch.ones(HONEST, D))).void is None


@pytest.mark.parametrize("codec", CODEC_TABLE)
@pytest.mark.parametrize("rule", RULES)
def test_a_run_outlives_its_liars(build: Callable[..., Federation], log: Log, codec: str, rule: str) -> None:
    d = perceptron().d
    b = round(32 / min(1, CODEC_TABLE[codec].bits))  # so that a message has 32 bits
    channel = TamperedChannel(d=d, b=b, key=Key(3), codec=codec, run=9, liars=(1, 4), robust=rule)
    federation = build(clients=9, channel=channel)
    run(federation, rounds=6, observer=log)
    assert [record.round for record in log.records] == list(range(1, 7))
    assert bool(federation.server.replica.w.isfinite().all())
    for record in log.records:
        assert set(record.refused) <= {1, 4}
        assert record.void is not None or record.participants + len(record.limited) >= 7
    if rule != "none":
        assert log.records[-1].metrics["loss"] < 2.0
