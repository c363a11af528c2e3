"""The channel: which codec goes which way, the mean, and where a client-level mechanism acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from desketch import Key, wire
from desketch.errors import PrivacyError
from desketch.fed import Federation, Privacy, SketchChannel, run
from desketch.fed.robust import weighted_mean

Build = Callable[..., Federation]


class Halving:
    """A client-level mechanism that shows where it acted: it halves at the client and answers 7 at the server."""

    sampling_rate, clients = 0.5, 6

    def sample(self, clients: int) -> list[int]:
        return [2]

    def guard(self, sketches: Tensor) -> Tensor:
        return sketches / 2

    def average(self, sketches: Tensor) -> Tensor:
        return torch.full((sketches.shape[1],), 7.0)


class Free:
    """A ledger that allows everything."""

    def charge(self, t: int) -> None:
        pass

    def epsilon(self) -> None:
        return None


def _channel(**settings: Any) -> SketchChannel:
    return SketchChannel(**{"d": 40, "b": 20, "key": Key(1), "codec": "f32", **settings})


def test_each_direction_has_its_codec() -> None:
    channel = _channel(codec="int8", codec_down="f16")
    (frame,) = channel.encode_updates(1, torch.ones(1, 40), clients=[0], weights=[1.0])
    step = channel.aggregate(1, {0: frame})
    assert step.broadcast is not None
    assert wire.peek(channel.in_full(1, 0, frame)).codec == "int8"
    assert wire.peek(wire.lengthen(step.broadcast, channel.header(1, "broadcast"))).codec == "f16"


def test_the_mean_is_summed_in_float64() -> None:
    values = torch.tensor([[1e9], [1.0], [-1e9]])
    assert float(weighted_mean(values, torch.ones(3))) == pytest.approx(1 / 3)
    assert float(weighted_mean(values[1:2], torch.tensor([5.0]))) == 1.0


def test_a_client_level_mechanism_guards_every_message_and_weighs_clients_alike() -> None:
    plain, private = _channel(), _channel(mechanism=Halving())
    deltas = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    frames = private.encode_updates(1, deltas, clients=[0, 1, 2], weights=[1.0, 20.0, 300.0])
    batch = private.decode_updates(1, dict(enumerate(frames)))
    assert batch.weights.tolist() == [1.0, 1.0, 1.0]
    torch.testing.assert_close(torch.from_numpy(batch.values), plain.sketch_at(1).sketch(deltas) / 2)


@pytest.mark.parametrize("arrived", [0, 2])
def test_a_client_level_mechanism_makes_the_mean_even_of_nobody(arrived: int) -> None:
    """An empty private cohort is released, noise and all: that nobody came is a secret too."""
    channel = _channel(mechanism=Halving())
    frames = channel.encode_updates(1, torch.ones(2, 40), clients=[0, 1], weights=[1.0, 1.0])
    step = channel.aggregate(1, dict(enumerate(frames[:arrived])))
    assert step.broadcast is not None
    assert channel.decode_broadcast(1, step.broadcast).norm == pytest.approx(7 * 20**0.5)
    assert _channel().aggregate(1, {}).broadcast is None


def test_a_private_cohort_is_the_mechanism_s_and_a_mechanism_named_is_applied(build: Build, log: Any) -> None:
    mechanism = Halving()
    privacy = Privacy(ledger=Free(), sketch=mechanism)  # type: ignore[arg-type]
    d = build().channel.d
    f = build(privacy=privacy, channel=_channel(d=d, mechanism=mechanism))
    sent: list[int] = []
    log.on_frames = lambda t, w, frames: sent.extend(frames)
    run(f, rounds=2, observer=log)
    assert sent == [2, 2]
    with pytest.raises(PrivacyError, match="client-level mechanism"):
        build(privacy=privacy)
    with pytest.raises(PrivacyError, match="client-level mechanism"):
        build(channel=_channel(d=d, mechanism=mechanism))
