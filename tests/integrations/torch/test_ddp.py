"""The DDP hook on real gloo processes: equal ranks, the promised moments, and training as good as plain DDP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from desketch import Key, draw
from desketch.errors import InputError
from desketch.integrations.torch.ddp import SketchState, _pack_f16, _unpack_f16

from .gloo import run

WORKER = Path(__file__).with_name("ddp_worker.py")


DRAWS = 400
# name -> (scenario of the worker, its options): everything one group of processes does, since starting it is the cost
PAIR = {
    "equal": ("equal_ranks", {"family": "countsketch"}),
    "moments countsketch": ("moments", {"family": "countsketch", "draws": DRAWS}),
    "moments srht": ("moments", {"family": "srht", "draws": DRAWS}),
    "moments weighed": ("moments", {"family": "countsketch", "draws": DRAWS, "weigh": 0.5}),
    "resume weighed": ("resume", {"weigh": True}),
    "forgotten": ("forgotten", {}),
    "strangers": ("strangers", {}),
    "learn": ("learn", {"steps": 400, "compression": 4, "lr_factor": 0.5}),
    "resume": ("resume", {}),
    "mismatch": ("mismatch", {}),
    "overflow": ("overflow", {}),
}
TRIO = {"equal": ("equal_ranks", {"family": "srht"})}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return run(WORKER, tmp_path_factory.mktemp("pair"), 2, PAIR)


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    return run(WORKER, tmp_path_factory.mktemp("trio"), 3, TRIO)


@pytest.mark.parametrize("group", ["pair", "trio"])
def test_ranks_stay_bit_equal_through_the_bucket_rebuild(group, request):
    first, *others = (seen["equal"] for seen in request.getfixturevalue(group))
    for name, seen in first.items():
        assert all(torch.equal(seen["w"], other[name]["w"]) for other in others), name
        stats = seen["stats"]
        d = seen["w"].numel()
        assert stats.steps == 8
        assert stats.bytes_plain == 8 * d * 4
        # six sketched steps of d/4 numbers, two warm ones of d; the f16 codec (and an f16 bucket) halves them
        size = {"f32": 4, "f16": 2, "fp16_wrapper": 2}[name]
        warm = 2 if name == "fp16_wrapper" else 4
        assert stats.bytes_sent == pytest.approx(2 * d * warm + 6 * d * size / 4, rel=0.01)
    distance = (first["f16"]["w"] - first["f32"]["w"]).norm() / first["f32"]["w"].norm()
    assert 0 < distance < 0.01


@pytest.mark.parametrize("family", ["countsketch", "srht"])
def test_the_gradient_used_has_mean_g_and_the_predicted_energy(pair, family):
    seen, other = (rank[f"moments {family}"] for rank in pair)
    plain, used = seen["plain"].double(), seen["used"].double()
    assert torch.equal(seen["used"], other["used"])
    d = plain.numel()
    alpha = draw(family, d=d, b=-(-d // 8), key=Key(0)).alpha
    # <used, g>/|g|² has mean 1; every random direction of the mean error is a z-score of its own
    along = used @ plain / plain.square().sum()
    assert abs((along.mean() - 1) / (along.std() / DRAWS**0.5)) < 4.5
    v = torch.randn(d, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = (used - plain) @ v
    assert ((errors.mean(0) / (errors.std(0) / DRAWS**0.5)).abs() < 4.5).all()
    energy = used.square().sum(1) / plain.square().sum()
    assert abs((energy.mean() - (1 + alpha)) / (energy.std() / DRAWS**0.5)) < 4.5
    assert seen["note"].noise_scale == pytest.approx(1 + alpha, rel=0.15)
    assert seen["note"].lr_factor == pytest.approx((1 + alpha) ** -0.5, rel=0.08)


def test_a_small_net_learns_as_well_as_with_plain_ddp(pair):
    seen, other = (rank["learn"] for rank in pair)
    assert torch.equal(seen["w"], other["w"])
    assert seen["plain"] > 0.9
    assert seen["sketched"] >= seen["plain"] - 0.015


def test_a_pickled_state_continues_the_same_stream(pair):
    seen = pair[0]["resume"]
    assert torch.equal(seen["pickled"]["w"], seen["kept"]["w"])
    assert seen["pickled"]["step"] == 6
    assert seen["pickled"]["stats"] == seen["kept"]["stats"]


def test_weighed_tensors_have_the_mean_g_and_noise_of_their_own_size(pair):
    def noise(seen):
        plain, used = seen["plain"].double(), seen["used"].double()[50:]  # the weights are then those of this batch
        parts = zip(*(x.split([64 * 128, 128, 128 * 10, 10], dim=-1) for x in (plain, used)), strict=True)
        return plain, used, [float((u - g).square().sum(1).mean() / g.square().sum()) for g, u in parts]

    seen, other = (rank["moments weighed"] for rank in pair)
    assert torch.equal(seen["used"], other["used"])
    plain, used, weighed = noise(seen)
    along = used @ plain / plain.square().sum()
    assert abs((along.mean() - 1) / (along.std() / len(used) ** 0.5)) < 4.5
    _, _, alike = noise(pair[0]["moments countsketch"])
    assert max(weighed) < 3 * min(weighed)
    assert max(alike) > 10 * min(alike)


def test_weights_are_resumed_too(pair):
    seen = pair[0]["resume weighed"]
    assert torch.equal(seen["pickled"]["w"], seen["kept"]["w"])
    assert not torch.equal(seen["kept"]["w"], pair[0]["resume"]["kept"]["w"])
    assert all("weigh(model.parameters()) again" in rank["forgotten"]["error"] for rank in pair)
    assert all("weigh() was not told parameters" in rank["strangers"]["error"] for rank in pair)


@pytest.mark.parametrize("power", [-0.1, 1.5, float("nan")])
def test_powers_that_make_no_weights_are_refused(power):
    with pytest.raises(InputError, match="power"):
        SketchState(key=Key(0)).weigh(torch.nn.Linear(2, 2).parameters(), power=power)


def test_ranks_with_different_keys_are_refused(pair):
    assert all("SketchStates differ" in rank["mismatch"]["error"] for rank in pair)


def test_an_overflow_stays_visible(pair):
    assert all(rank["overflow"] == {"f32": True, "f16": True} for rank in pair)


def test_f16_rows_round_relative_to_their_own_scale():
    rows = torch.randn(3, 1001, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1e-30], [1.0], [1e30]])
    rows[1, :10] = 0
    back = _unpack_f16(_pack_f16(rows))
    assert ((back - rows).abs() <= rows.abs() * 2**-11 + rows.abs().amax(1, keepdim=True) * 2**-25).all()
    assert torch.equal(_unpack_f16(_pack_f16(torch.zeros(2, 3))), torch.zeros(2, 3))


@pytest.mark.parametrize(
    "bad", [{"family": "fourier"}, {"compression": 0.5}, {"compression": float("nan")}, {"codec": "int3"}]
)
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InputError):
        SketchState(key=Key(0), **bad)


@pytest.mark.parametrize("family", ["countsketch", "srht"])
def test_every_bucket_of_every_step_has_an_r_of_its_own(family):
    """Buckets of one size in one step, and one bucket in two steps; equal R would make their errors add up."""
    state = SketchState(family=family, compression=4, key=Key(3))
    places = [state._enter(64, last=last) for last in (False, False, True, False, True)]
    assert places == [(0, 0), (0, 64), (0, 128), (1, 0), (1, 64)]
    drawn = [state._draw(64, step, offset).to_dense() for step, offset in places]
    for i, R in enumerate(drawn):
        assert not any(np.allclose(R, other) for other in drawn[i + 1 :])
    assert np.array_equal(drawn[1], draw(family, d=64, b=16, key=Key(3).fold_in("ddp", 0, 64)).to_dense())
