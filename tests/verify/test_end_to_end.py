"""The shipped system: frames of every codec through `desketch.fed`, at sizes where every family has its own layout."""

import numpy as np
import pytest
import torch

from desketch.fed import SketchChannel
from desketch.keys import Key
from desketch.sketches import family
from desketch.theory.embedding import FAMILIES
from desketch.verify.checks import LONGEST
from desketch.verify.end_to_end import check_federation, check_update_rule, check_wire
from desketch.verify.objectives import large_objectives
from desketch.verify.shipped import Route, train
from desketch.verify.suite import FULL, QUICK, steps
from desketch.wire import CODEC_TABLE

D, B = QUICK.shipped_d, QUICK.shipped_b
EQUAL, DIFFERENT = (large_objectives(D, heterogeneous=h) for h in (False, True))
KEY = Key(11)


def _wire(name, codec="f32"):
    return Route(family=name, d=D, b=B, codec=codec)


@pytest.mark.parametrize("scale", [QUICK, FULL])
@pytest.mark.parametrize("name", ["countsketch", "sparse1", "sparse2"])
def test_the_shipped_size_does_not_fall_back_to_the_textbook(scale, name):
    assert family(name, d=scale.shipped_d, b=scale.shipped_b).blocked


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("codec", CODEC_TABLE)
def test_what_comes_back_is_unbiased_and_within_its_second_moment(name, codec):
    rows = list(check_wire(_wire(name, codec), rounds=30, key=KEY))
    assert {row.theorem for row in rows} == {"thm:enc_dec (unbiased over the wire)", "thm:enc_dec (over the wire)"}
    assert [row for row in rows if not row.holds] == []


def test_a_biased_wire_is_noticed(monkeypatch):
    honest = SketchChannel.decode_broadcast

    def shrunk(self, t, frame):
        update = honest(self, t, frame)
        return type(update)(update.vector * 0.7, update.norm, update.b)

    monkeypatch.setattr(SketchChannel, "decode_broadcast", shrunk)
    rows = check_wire(_wire("srht"), rounds=30, key=KEY)
    assert [row.holds for row in rows if "unbiased" in row.theorem] == [False] * 6


@pytest.mark.parametrize("name", FAMILIES)
def test_the_round_that_is_shipped_is_that_of_the_lemma(name):
    for objective in DIFFERENT:
        (row,) = check_update_rule(objective, _wire(name), K=3, rounds=4, key=KEY)
        assert row.holds, row


def test_another_sketch_on_the_way_down_is_noticed(monkeypatch):
    honest = SketchChannel.decode_broadcast
    monkeypatch.setattr(SketchChannel, "decode_broadcast", lambda self, t, frame: _swapped(self, t, frame, honest))
    (row,) = check_update_rule(DIFFERENT[1], _wire("ams"), K=3, rounds=4, key=KEY)
    assert not row.holds
    (row, *_) = check_federation(EQUAL[0], _wire("ams"), cases=LONGEST, K=5, rounds=8, seeds=8, key=KEY)
    assert not row.holds


def _swapped(channel, t, frame, honest):
    update = honest(channel, t, frame)
    return type(update)(torch.flip(update.vector, (0,)), update.norm, update.b)


@pytest.mark.parametrize("codec", CODEC_TABLE)
@pytest.mark.parametrize(
    ("objective", "K"), [(EQUAL[0], 5), (EQUAL[2], 5), (EQUAL[1], 1)], ids=["isotropic", "flat", "K=1"]
)
def test_runs_with_equal_clients_stay_below_the_bounds(objective, K, codec):
    rows = [
        row
        for name in ("srht", "countsketch", "sparse2")
        for row in check_federation(objective, _wire(name, codec), cases=LONGEST, K=K, rounds=6, seeds=6, key=KEY)
    ]
    assert rows
    assert [row for row in rows if not row.holds] == []


@pytest.mark.parametrize("codec", ["f32", "int4", "sign1"])
@pytest.mark.parametrize("objective", DIFFERENT, ids=lambda o: o.setting)
def test_runs_with_different_clients_stay_below_the_bounds(objective, codec):
    rows = list(check_federation(objective, _wire("srht", codec), K=5, rounds=8, seeds=8, key=KEY))
    assert rows
    assert [row for row in rows if not row.holds] == []


def test_a_path_starts_at_w0_and_its_local_means_at_the_round_that_follows():
    objective = DIFFERENT[1]
    path = train(objective, _wire("srht"), eta=0.1, K=1, rounds=3, key=KEY)
    assert np.allclose(path.W[0], objective.w0, atol=1e-6)
    assert np.allclose(path.local_means, path.W[:-1])  # one local step: its only iterate is w


def test_the_suite_covers_every_family_codec_and_kind_of_problem():
    for scale in (QUICK, FULL):
        names = [step.name for step in steps(scale)]
        for codec in CODEC_TABLE:
            for name in FAMILIES:
                assert f"over the wire: {name}, {codec}" in names
                assert any(f"{name}, {codec}" in step for step in names if step.startswith("through fed"))
        assert any("flat" in step for step in names if step.startswith("through fed"))
