"""One conformance suite over the channel of every method: frames, bytes, refusals, memory, resuming."""

from __future__ import annotations

import math

import pytest
import torch

from desketch import wire
from desketch.baselines.channel import CompressedChannel
from desketch.baselines.compressor import ErrorFeedback
from desketch.baselines.decomfl import Directions
from desketch.baselines.fetchsgd import FetchSGDChannel
from desketch.baselines.methods import BUDGET, METHODS, Method, Wiring, find_methods
from desketch.baselines.sparse import SparseTernary
from desketch.errors import ConfigError, InputError, WireError
from desketch.fed.channel import Channel
from desketch.keys import Key

SHAPES = ((24, 40), (24,), (10, 24), (10,))
D = sum(math.prod(shape) for shape in SHAPES)
WIRING = Wiring(shapes=SHAPES, d=D, key=Key(3), run=77, local_steps=2)
CLIENTS, WEIGHTS = [4, 9, 2], [10.0, 30.0, 20.0]
TUNED_SIZES = {"density": 0.05, "compression": 10.0, "b": 120, "directions": 40}


def build(method: Method) -> Channel:
    setting = {**method.untuned, **{k: v for k, v in TUNED_SIZES.items() if k in method.untuned}}
    return method.channel(WIRING, setting)


def deltas(t: int, n: int = 3, width: int = D) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(100 + t)) * 0.01


def width(channel: Channel) -> int:
    """Numbers in a row that clients hand over: the change of w, or its coordinates along public directions."""
    return channel.steps * channel.directions if isinstance(channel, Directions) else D


def encoded(channel: Channel, t: int) -> list[bytes]:
    return channel.encode_updates(t, deltas(t, width=width(channel)), clients=CLIENTS, weights=WEIGHTS)


def play(channel: Channel, rounds: range) -> list[tuple[list[bytes], bytes, torch.Tensor]]:
    """Frames, broadcast and decoded update of each round."""
    played = []
    for t in rounds:
        frames = encoded(channel, t)
        step = channel.aggregate(t, dict(zip(CLIENTS, frames, strict=True)))
        assert step.broadcast is not None
        assert not step.refused
        assert sorted(step.participants) == sorted(CLIENTS)
        played.append((frames, step.broadcast, channel.decode_broadcast(t, step.broadcast).vector))
    return played


@pytest.fixture(params=[name for name, method in METHODS.items() if method.channel])
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]


def test_every_method_is_tuned_with_the_same_budget(method):
    assert len(method.grid) == BUDGET
    assert len({tuple(setting.items()) for setting in method.grid}) == BUDGET


def test_a_round_trip_points_along_the_weighted_mean(method):
    channel = build(method)
    common = torch.randn(width(channel), generator=torch.Generator().manual_seed(5))
    frames = channel.encode_updates(1, torch.stack([common] * 3), clients=CLIENTS, weights=WEIGHTS)
    step = channel.aggregate(1, dict(zip(CLIENTS, frames, strict=True)))
    u = channel.decode_broadcast(1, step.broadcast)
    meant = channel.vector(1, common) if isinstance(channel, Directions) else common
    assert u.vector.shape == (D,)
    assert torch.nn.functional.cosine_similarity(meant, u.vector, dim=0) > 0.1
    assert u.norm > 0


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam"])
def test_dense_f32_is_the_exact_weighted_mean(name):
    ((_, _, u),) = play(build(METHODS[name]), range(1, 2))
    weights = torch.tensor(WEIGHTS)
    torch.testing.assert_close(u, (weights[:, None] * deltas(1)).sum(0) / weights.sum())


def test_frames_are_the_wires_and_carry_the_weight(method):
    channel = build(method)
    frames = encoded(channel, 1)
    for client, frame, weight in zip(CLIENTS, frames, WEIGHTS, strict=True):
        full = channel.in_full(1, client, frame)
        fields = wire.peek(full)
        assert fields.size == len(full) > len(frame) + 12
        assert (fields.d, fields.run, fields.round, fields.weight) == (D, 77, 1, weight)


def test_compressing_methods_send_fewer_bytes_both_ways(method):
    ((frames, broadcast, _),) = play(build(method), range(1, 2))
    dense = method.name in ("fedavg", "fedavgm", "fedadam")
    for message in (*frames, broadcast):
        assert (len(message) < 4 * D) != dense


def test_bad_frames_are_refused_by_name_and_the_round_goes_on(method):
    channel = build(method)
    good, cut, flipped = encoded(channel, 1)
    flipped = flipped[:-6] + bytes([flipped[-6] ^ 1]) + flipped[-5:]
    step = channel.aggregate(1, {4: good, 9: cut[:-1], 2: flipped, 5: b""})
    assert step.participants == (4,)
    assert set(step.refused) == {9, 2, 5}
    assert step.broadcast is not None


def test_frames_of_another_round_are_refused(method):
    channel = build(method)
    frames = encoded(channel, 1)
    step = channel.aggregate(2, dict(zip(CLIENTS, frames, strict=True)))
    assert step.broadcast is None
    assert step.participants == ()
    assert all("round" in reason for reason in step.refused.values())


def test_a_damaged_broadcast_is_refused(method):
    channel = build(method)
    ((_, broadcast, _),) = play(channel, range(1, 2))
    with pytest.raises(WireError):
        channel.decode_broadcast(1, broadcast[:-1])
    with pytest.raises(WireError):
        channel.decode_broadcast(2, broadcast)


def test_an_update_that_is_not_finite_is_never_sent(method):
    channel = build(method)
    bad = deltas(1, width=width(channel))
    bad[1, 3] = math.nan
    with pytest.raises(WireError):
        channel.encode_updates(1, bad, clients=CLIENTS, weights=WEIGHTS)


def test_resuming_continues_byte_for_byte(method):
    whole = play(build(method), range(1, 7))
    first = build(method)
    play(first, range(1, 4))
    second = build(method)
    second.load_state_dict(first.state_dict())
    for (frames, broadcast, _), (frames2, broadcast2, _) in zip(whole[3:], play(second, range(4, 7)), strict=True):
        assert frames == frames2
        assert broadcast == broadcast2


def test_any_receiver_decodes_the_broadcast_alike(method):
    """A replica needs the public key and the setting, never a sender's memory."""
    for t, (_, broadcast, u) in enumerate(play(build(method), range(1, 4)), start=1):
        assert torch.equal(build(method).decode_broadcast(t, broadcast).vector, u)


@pytest.mark.parametrize("name", ["topk", "stc", "powersgd"])
def test_two_way_error_feedback_loses_nothing(name):
    """What was applied and what server and clients hold back add up to all updates (equal weights)."""
    channel = build(METHODS[name])
    applied = torch.zeros(D)
    for t in range(1, 6):
        frames = channel.encode_updates(t, deltas(t), clients=CLIENTS, weights=[1.0] * 3)
        applied += channel.decode_broadcast(
            t, channel.aggregate(t, dict(zip(CLIENTS, frames, strict=True))).broadcast
        ).vector
    state = channel.state_dict()
    held = state["server"]["error"] + sum(state["clients"][str(c)]["error"] for c in CLIENTS) / 3
    torch.testing.assert_close(applied + held, sum(deltas(t).mean(0) for t in range(1, 6)), rtol=0, atol=1e-5)


def test_sparseloco_forgets_at_the_clients_and_not_at_the_server():
    """What is held back fades by 0.95 a round where the paper has it, and nowhere else."""
    channel = build(METHODS["sparseloco"])
    kept, applied, sent = torch.zeros(3, D), torch.zeros(D), torch.zeros(D)
    for t in range(1, 6):
        frames = channel.encode_updates(t, deltas(t), clients=CLIENTS, weights=[1.0] * 3)
        values, _, _ = channel.open_updates(t, dict(zip(CLIENTS, frames, strict=True)))
        rows = torch.stack([values[c] for c in CLIENTS])
        kept = 0.95 * kept + deltas(t) - rows
        sent += rows.mean(0)
        step = channel.aggregate(t, dict(zip(CLIENTS, frames, strict=True)))
        applied += channel.decode_broadcast(t, step.broadcast).vector
    state = channel.state_dict()
    torch.testing.assert_close(applied + state["server"]["error"], sent, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        torch.stack([state["clients"][str(c)]["error"] for c in CLIENTS]), kept, rtol=0, atol=1e-5
    )


def test_clients_that_are_away_keep_their_residual():
    channel = CompressedChannel(
        name="stc",
        up=ErrorFeedback(SparseTernary(d=D, k=5)),
        down=ErrorFeedback(SparseTernary(d=D, k=5)),
        key=Key(1),
    )
    channel.encode_updates(1, deltas(1, 2), clients=[7, 8], weights=[1.0, 1.0])
    before = channel.state_dict()["clients"]["7"]["error"].clone()
    channel.encode_updates(2, deltas(2, 1), clients=[8], weights=[1.0])
    assert torch.equal(channel.state_dict()["clients"]["7"]["error"], before)


def test_fetchsgd_finds_heavy_hitters_and_forgets_what_it_sent():
    channel = FetchSGDChannel(d=5000, rows=5, columns=400, k=8, key=Key(4), momentum=0.0)
    x = 0.001 * torch.randn(1, 5000, generator=torch.Generator().manual_seed(0))
    heavy = torch.arange(100, 4900, 600)
    x[0, heavy] = torch.tensor([3.0, -2.0, 1.5, 4.0, -3.0, 2.5, -1.0, 2.0])
    frames = channel.encode_updates(1, x, clients=[0], weights=[1.0])
    u = channel.decode_broadcast(1, channel.aggregate(1, {0: frames[0]}).broadcast).vector
    assert torch.equal(u.nonzero().flatten(), heavy)
    torch.testing.assert_close(u[heavy], x[0, heavy], rtol=0, atol=0.05)
    assert channel.state_dict()["E"].abs().max() < 0.1


def test_fetchsgd_momentum_is_checked():
    with pytest.raises(InputError, match="momentum"):
        FetchSGDChannel(d=50, rows=3, columns=10, k=2, key=Key(0), momentum=1.0)


def test_unknown_methods_are_named():
    with pytest.raises(ConfigError, match="stc2"):
        find_methods(["stc", "stc2"])
