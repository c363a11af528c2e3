"""A client is whatever gives an update and a weight; what it gives is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from desketch import Key
from desketch.errors import InputError
from desketch.fed import SketchChannel, encode_update, encode_updates

d = 40


@dataclass
class Own:
    """A client with a training loop of its own."""

    client: int
    delta: Any
    weight: Any = 1.0

    def update(self, w: Tensor, t: int) -> tuple[Any, Any]:
        return self.delta, self.weight


def _channel() -> SketchChannel:
    return SketchChannel(d=d, b=d, key=Key(1), codec="f32")


@pytest.mark.parametrize("delta", [torch.zeros(d + 1), torch.zeros(1, d), torch.zeros(d).double(), [0.0] * d, None])
def test_an_update_that_is_no_change_of_w_is_refused(delta: Any) -> None:
    with pytest.raises(InputError, match="client 3: update"):
        encode_update(Own(3, delta), _channel(), torch.zeros(d), t=1)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "much", None])
def test_a_weight_that_is_none_is_refused(weight: Any) -> None:
    with pytest.raises(InputError, match="positive finite weight"):
        encode_update(Own(3, torch.zeros(d), weight), _channel(), torch.zeros(d), t=1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_who_diverges_is_refused_and_the_others_keep_their_weights(bad: float) -> None:
    clients = [Own(c, torch.full((d,), bad if c == 1 else c + 1.0), 10.0 + c) for c in range(4)]
    frames, refused = encode_updates(clients, _channel(), torch.zeros(d), t=1)
    assert set(refused) == {1}
    batch = _channel().decode_updates(1, frames)
    assert batch.senders == (0, 2, 3)
    assert batch.weights.tolist() == [10.0, 12.0, 13.0]


class TogetherCrew:
    """Trains all its members at once."""

    def updates(self, w: Tensor, participants: Any, t: int) -> tuple[Tensor, list[float]]:
        return torch.stack([p.delta for p in participants]), [p.weight for p in participants]


@dataclass
class Member(Own):
    """A client of a crew."""

    crew: Any = None


def test_a_crew_s_refused_member_does_not_shift_the_others_weights() -> None:
    crew = TogetherCrew()
    values = [1.0, float("inf"), 3.0]
    members = [Member(c, torch.full((d,), value), 10.0 + c, crew) for c, value in enumerate(values)]
    frames, refused = encode_updates(members, _channel(), torch.zeros(d), t=1)
    assert set(refused) == {1}
    batch = _channel().decode_updates(1, frames)
    assert dict(zip(batch.senders, batch.weights.tolist(), strict=True)) == {0: 10.0, 2: 12.0}
