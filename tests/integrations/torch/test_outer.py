"""The outer step on real gloo processes: equal replicas, the promised arithmetic and bytes, and how it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from desketch import Key, Wire, draw
from desketch.fed.open_step import gain
from desketch.integrations.torch import Dense, Sparse
from desketch.integrations.torch.exchange import mean_bytes, parts
from desketch.integrations.torch.methods.base import whole
from desketch.integrations.torch.nesterov import Nesterov
from desketch.integrations.torch.round import HELLO_BYTES
from desketch.sketches import Weighted
from desketch.theory.weights import adam_weights

from .gloo import run

WORKER = Path(__file__).with_name("outer_worker.py")
WAYS = {
    "sketch": {"compression": 4},
    "sketch, SGD": {"compression": 4, "optimizer": "sgd"},
    "sketch f32": {"wire": Wire(compression=4, codec="f32")},
    "sketch, half a bit up": {"wire": Wire(compression=4, codec="trellis2", codec_down="trellis1")},
    "countsketch int8": {"wire": Wire(family="countsketch", compression=4, codec="int8", codec_down="f16")},
    "diloco": {"method": "diloco"},
    "diloco-int8": {"method": "diloco-int8"},
    "diloco-int4": {"method": "diloco-int4"},
    "sparseloco": {"wire": Sparse(share=0.05)},
    "signs": {"method": "signs"},
    "sketch, overlapped": {"compression": 4, "overlap": True},
    "sparseloco, overlapped": {"wire": Sparse(share=0.05), "overlap": True},
}
ODD = {
    "every": {"every": 3},
    "key": {"key": Key(6)},
    "wire": {"compression": 5},
    "outer_lr": {"outer_lr": 0.5},
    "outer_momentum": {"outer_momentum": 0.6},
    "weights": {"weights": "none"},
    "overlap": {"overlap": True},
}
TRIO = {
    **{f"trained {name}": ("trained", way) for name, way in WAYS.items()},
    **{f"resumed {name}": ("resumed", way) for name, way in WAYS.items()},
    "learnt": ("trained", {"compression": 4, "steps": 60, "every": 4}),
    "round f32": ("one_round", {"method": "diloco"}),
    "round sketch": ("one_round", {"wire": Wire(compression=4, codec="f32")}),
    "round sketch, SGD": ("one_round", {"wire": Wire(compression=4, codec="f32"), "optimizer": "sgd"}),
    "round sparse": ("one_round", {"wire": Sparse(share=0.05)}),
    "refused": ("refused", ODD),
    "frozen": ("frozen", {}),
    "apart": ("started_apart", {}),
    "joined": ("joined", {"wire": Wire(compression=4)}),
    "nan f32": ("not_finite", {"method": "diloco"}),
    "nan sketch": ("not_finite", {"compression": 4}),
    "nan sparse": ("not_finite", {"wire": Sparse(share=0.05)}),
    "expecting sketch": ("expecting", {"wire": Wire(compression=4, codec="f32"), "outer_lr": 0.5}),
    "expecting sparse": ("expecting", {"wire": Sparse(share=0.05)}),
    "expecting f32": ("expecting", {"method": "diloco"}),
    "nan overlapped": ("not_finite", {"compression": 4, "overlap": True}),
    "auto": ("automatic", {"budget": 400.0, "thin": 0.8}),
}


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    return run(WORKER, tmp_path_factory.mktemp("trio"), 3, TRIO)


def equal(values):
    first, *others = values
    return all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("way", WAYS)
def test_replicas_are_bit_equal_after_every_round_and_training_goes_on(trio, way):
    seen = [rank[f"trained {way}"] for rank in trio]
    assert len(seen[0]["thetas"]) == 4
    for thetas in zip(*(one["thetas"] for one in seen), strict=True):
        assert equal(thetas)
    assert equal([one["w"] for one in seen])
    assert not torch.equal(seen[0]["thetas"][-1], seen[0]["thetas"][-2])
    assert seen[0]["weights"] == ("1" if "SGD" in way else "v^(-1/4)")


@pytest.mark.parametrize("way", [way for way in WAYS if "overlapped" not in way])
def test_bytes_are_those_of_the_collectives(trio, way):
    stats = [rank[f"trained {way}"]["stats"] for rank in trio]
    assert sum(s.sent for s in stats) == sum(s.received for s in stats)
    a_round = trio[0][f"trained {way}"]["predicted"] + 2 * HELLO_BYTES
    mean = sum(s.sent for s in stats) / 3
    # what is left over is the comparison of arguments before the first step
    assert 400 < mean - 4 * a_round < 2200


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_bit_costs_a_quarter_of_a_byte_a_number_and_direction(ranks):
    b = 10**6
    assert mean_bytes(b, ranks, up="sign1", down="sign1") == pytest.approx((ranks - 1) / ranks * 2 * b / 8, rel=1e-3)


@given(b=st.integers(1, 5000), ranks=st.integers(1, 9))
def test_parts_cover_the_numbers_and_none_is_too_small_for_one_bit(b, ranks):
    cuts = parts(b, ranks)
    assert len(cuts) == ranks
    assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(b))
    assert all(cut.stop - cut.start >= min(b, 64) for cut in cuts if cut.stop > cut.start)


def test_a_sketched_run_learns(trio):
    seen = trio[0]["learnt"]
    assert seen["after"] < 0.55 * seen["before"]


def nesterov(theta, u, lr=0.7, momentum=0.9):
    return theta + lr * (1 + momentum) * u


def test_a_round_of_f32_is_nesterov_on_the_mean_update(trio):
    seen = [rank["round f32"] for rank in trio]
    u = torch.stack([one["delta"] for one in seen]).double().mean(0).float()
    torch.testing.assert_close(seen[0]["after"], nesterov(seen[0]["theta"], u), rtol=1e-6, atol=1e-8)
    assert torch.equal(seen[1]["w"], seen[0]["after"])


@pytest.mark.parametrize("optimizer", ["", ", SGD"])
def test_a_round_of_sketches_is_the_weighted_sketch_of_the_mean_update(trio, optimizer):
    seen = [rank[f"round sketch{optimizer}"] for rank in trio]
    u = torch.stack([one["delta"] for one in seen]).mean(0)
    sizes = seen[0]["sizes"]
    v = torch.tensor([one["moments"] for one in seen]).double().mean(0).tolist()
    D = Weighted(
        draw("srht", d=676, b=169, key=Key(5).fold_in("outer", 0)),
        [1.0] * 4 if optimizer else adam_weights(v, sizes),
        sizes,
    )
    eta = gain(4.0, up=0.0, down=0.0, ranks=3, momentum=0.8)
    expected = nesterov(seen[0]["theta"], eta * D.desketch(D.sketch(u)), lr=1.0, momentum=0.8)
    # the notes carry v in half precision, which D feels by a quarter of their rounding
    torch.testing.assert_close(seen[0]["after"], expected, rtol=2e-3, atol=2e-4)
    if not optimizer:
        assert max(D.weights) > 1.2 * min(D.weights)


def test_a_sparse_round_and_its_memory_add_up_to_the_update(trio):
    seen = [rank["round sparse"] for rank in trio]
    sent = [one["delta"] - one["state"]["memory"] for one in seen]
    assert all(0 < int((s.abs() > 1e-9).sum()) <= 34 for s in sent)
    torch.testing.assert_close(seen[0]["after"], seen[0]["theta"] + 2 * torch.stack(sent).mean(0), rtol=1e-4, atol=1e-6)


def test_the_gain_is_the_printed_one():
    omega = torch.pi / 2 - 1
    assert gain(10, up=omega, down=omega, ranks=4, momentum=0.9) == pytest.approx(
        1 / (1 + 0.1 * 10 * (1 + omega) * (1 + omega / 4))
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_state_resumes_exactly_in_the_middle_of_a_round(trio, way):
    for rank in trio:
        seen = rank[f"resumed {way}"]
        assert torch.equal(seen["kept"], seen["fresh"])
        assert torch.equal(*seen["theta"])
        kept, fresh = seen["stats"]
        assert (kept.rounds, kept.skipped) == (fresh.rounds, fresh.skipped)
        assert fresh.sent >= kept.sent  # the arguments are compared again


@pytest.mark.parametrize("name", ODD)
def test_a_rank_with_another_argument_is_refused_by_its_name(trio, name):
    errors = [rank["refused"][name] for rank in trio]
    assert all(f"the ranks differ in {name}: rank 0 has" in str(error) for error in errors)
    assert all("rank 2 has" in error for error in errors)


def test_frozen_parameters_stay_and_changes_are_refused_with_advice(trio):
    for rank in trio:
        seen = rank["frozen"]
        assert seen["same"]
        assert seen["d"] == 676 - 512
        assert "0.weight" in seen["changed"]
        assert "build a new SketchedOuter" in seen["changed"]
        assert "the ranks differ in parameters" in seen["differs"]


def test_replicas_that_start_apart_or_drift_apart_are_found(trio):
    seen = [rank["apart"] for rank in trio]
    assert all("the ranks differ in start" in one["error"] and "synchronise" in one["error"] for one in seen)
    assert equal([one["start"] for one in seen])
    assert equal([one["together"] for one in seen])
    assert all("no longer equal, rank 0 and ranks [2] differ in theta" in one["tampered"] for one in seen)


def test_a_rank_that_joins_takes_the_others_state(trio):
    seen = [rank["joined"] for rank in trio]
    assert all("the ranks differ in round" in one["error"] for one in seen)
    assert equal([one["w"] for one in seen])
    assert equal([one["M"] for one in seen])
    assert {one["round"] for one in seen} == {4}


def test_an_overlapped_sketch_goes_on_from_where_the_round_will_lead(trio):
    eta = gain(4, up=0.0, down=0.0, ranks=3, momentum=0.8)
    for rank in trio:
        seen = rank["expecting sketch"]
        expected = seen["theta"] + 0.5 * (1.8 * eta * seen["delta"] + 0.8**2 * seen["M"])
        torch.testing.assert_close(seen["went"], expected, rtol=1e-5, atol=1e-6)
        assert seen["M"].abs().max() > 0


@pytest.mark.parametrize("way", ["sparse", "f32"])
def test_other_overlapped_methods_go_on_from_their_own_update(trio, way):
    for rank in trio:
        seen = rank[f"expecting {way}"]
        torch.testing.assert_close(seen["went"], seen["theta"] + seen["delta"], rtol=1e-5, atol=1e-6)


@given(m=st.floats(0, 0.99), lr=st.floats(0.01, 3), seed=st.integers(0, 99), steps=st.integers(0, 3))
def test_an_expected_step_is_the_step_not_taken(m, lr, seed, steps):
    draws = torch.Generator().manual_seed(seed)
    theta, outer = torch.zeros(7), Nesterov(lr=lr, momentum=m)
    for _ in range(steps):
        outer.step(theta, whole(torch.randn(7, generator=draws)))
    u, before = torch.randn(7, generator=draws), theta.clone()
    expected = outer.expected(theta, u)
    assert torch.equal(theta, before)
    outer.step(theta, whole(u))
    torch.testing.assert_close(expected, theta, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["f32", "sketch", "sparse", "overlapped"])
def test_a_rank_that_is_not_finite_is_left_out_by_name_on_all_ranks(trio, way):
    seen = [rank[f"nan {way}"] for rank in trio]
    for one in seen:
        (skipped,) = one["stats"].skipped
        assert (skipped.round, skipped.rank) == (1, 1)
        assert "rank 1 is left out, its update holds NaN or infinity" in one["warned"][0]
        assert torch.isfinite(one["finite"]).all()
        assert one["later"].skipped == one["stats"].skipped  # it trains again: its broken moments were dropped
        assert "no rank's update can be used" in one["error"]
        assert torch.isfinite(one["intact"]).all()
    assert equal([one["after"] for one in seen])


def test_the_mean_leaves_out_who_is_left_out(trio):
    first, _, third = (rank["nan f32"] for rank in trio)
    u = (first["delta"] + third["delta"]) / 2
    step = 0.7 * (u + 0.9 * (0.9 * first["M"] + u))
    torch.testing.assert_close(first["after"] - first["theta"], step, rtol=1e-4, atol=1e-6)


def test_auto_builds_what_it_chose(trio):
    for rank in trio:
        seen = rank["auto"]
        assert seen["wire"] == seen["choice"].wire
        assert seen["every"] == seen["choice"].every
        assert seen["choice"].bytes_per_parameter <= 400.0
        thin, rich = seen["said"]
        assert any("expect no gain over training alone" in text for text in thin)
        assert not any("no gain" in text for text in rich)


def test_ddp_inside_sites_and_the_outer_step_between_them(tmp_path):
    scenarios = {f"sites {overlap}": ("sites", {"overlap": overlap}) for overlap in (False, True)}
    seen = run(WORKER, tmp_path, 4, scenarios)
    for name in scenarios:
        ranks = [one[name] for one in seen]
        assert not torch.equal(ranks[0]["apart"], ranks[2]["apart"])
        assert torch.equal(ranks[0]["apart"], ranks[1]["apart"])
        assert equal([one["w"] for one in ranks])
        for after in zip(*(one["after"] for one in ranks), strict=True):
            assert torch.equal(after[0], after[1])
            assert equal(after) is (name == "sites False")
        assert [one["stats"].sent > 0 for one in ranks] == [True, False, True, False]
        assert len({one["round"] for one in ranks}) == 1


@pytest.mark.parametrize("way", ["sketch", pytest.param("sparseloco", marks=pytest.mark.slow)])
def test_a_rank_that_dies_ends_the_others_with_one_error_and_a_state_to_resume(tmp_path, way):
    options = {"folder": str(tmp_path), "loop": WAYS[way]}
    died = run(WORKER, tmp_path, 3, {"dying": ("dying", options)}, expected=[0, 0, 9])
    for rank in (0, 1):
        seen = died[rank]["dying"]
        assert "a rank has died or cannot be reached" in seen["error"]
        before = torch.load(tmp_path / f"before{rank}.pt", weights_only=False)["outer"]
        assert torch.equal(seen["theta"], before["theta"])
        assert seen["after"]["outer"]["round"] == before["round"]
        assert seen["after"]["outer"]["count"] == before["count"] == 3
        torch.save(seen["after"], tmp_path / f"before{rank}.pt")  # the others resume from what they had left
    (tmp_path / "rendezvous").unlink(missing_ok=True)
    for rank in run(WORKER, tmp_path, 3, {"revived": ("revived", options)}):
        assert torch.equal(rank["revived"]["revived"], rank["revived"]["whole"])


def test_world_size_one_trains_as_if_it_were_not_there(tmp_path):
    scenarios = {name: ("alone", way) for name, way in WAYS.items() if "SGD" not in name}
    (seen,) = run(WORKER, tmp_path, 1, scenarios)
    for one in seen.values():
        assert torch.equal(one["w"], one["plain"])
        assert (one["stats"].sent, one["stats"].received, one["stats"].rounds) == (0, 0, 4)


def test_dense_and_sparse_wires_are_checked():
    from desketch.errors import ConfigError

    for make, bad in ((Dense, {"codec": "sign1"}), (Sparse, {"share": 0.0}), (Sparse, {"decay": 1.5})):
        with pytest.raises(ConfigError):
            make(**bad)
