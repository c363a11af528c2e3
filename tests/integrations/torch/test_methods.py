"""Methods and the choice among them: codes that come back, budgets that are kept, words that are true."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from desketch import Key, Wire
from desketch.baselines.chunks import CHUNK
from desketch.errors import ConfigError, RunError, WireError
from desketch.fed.moments import drop_broken_state, second_moments
from desketch.fed.open_step import adaptive
from desketch.integrations.torch import Dense, Signs, SketchedOuter, Sparse, choose
from desketch.integrations.torch.auto import bytes_per_parameter
from desketch.integrations.torch.measured import ALONE, ROWS, STEPS
from desketch.integrations.torch.methods import FEW, METHODS, defaults, make, wire_of
from desketch.integrations.torch.methods.base import whole
from desketch.integrations.torch.methods.sparse import SparseMethod
from desketch.integrations.torch.nesterov import Nesterov

SIZES = [300_000, 155_616]
ONE_BIT = Wire(compression=2.5)


def vector(d, seed=0):
    return torch.randn(d, generator=torch.Generator().manual_seed(seed)) * 1e-3


@pytest.mark.parametrize("d", [1, 37, CHUNK, CHUNK + 1, 3 * CHUNK + 777])
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_the_sparse_code_keeps_the_largest_entries_of_every_chunk_in_two_bits(d, share):
    method, p = SparseMethod(Sparse(share=share), d=d), vector(d)
    out = method.decode(method.encode(p))
    for start in range(0, d, CHUNK):
        a, b = p[start : start + CHUNK], out[start : start + CHUNK]
        kept = b != 0
        k = max(1, round(share * len(a)))
        assert int(kept.sum()) == k
        assert a[kept].abs().min() >= a[~kept].abs().max() if k < len(a) else True
        assert torch.equal(torch.sign(a[kept]), torch.sign(b[kept]))
        assert len(b[kept].abs().unique()) <= 2
        # two magnitudes, each the mean of those it stands for: at least as good as one
        one = (a[kept].abs() - a[kept].abs().mean()).square().sum()
        assert (a[kept] - b[kept]).square().sum() <= one * 1.02 + 1e-12


@given(st.integers(1, 3 * CHUNK), st.floats(1e-30, 1e30), st.integers(0, 9))
def test_the_sparse_code_scales(d, scale, seed):
    method, p = SparseMethod(Sparse(share=0.05), d=d), vector(d, seed) * scale
    out = method.decode(method.encode(p))
    assert torch.isfinite(out).all()
    if float(p.norm()) > 1e-34:
        assert float((p - out).double().norm()) < float(p.double().norm())


def test_zeros_cost_no_more_than_numbers_and_come_back_as_zeros():
    method = SparseMethod(Sparse(), d=5000)
    assert not method.decode(method.encode(torch.zeros(5000))).any()


def test_the_memory_moves_only_when_a_round_is_over():
    method, p = SparseMethod(Sparse(share=0.02, decay=0.5), d=5000), vector(5000)
    first = method.prepare(0, p)
    assert method.prepare(0, p) == first
    assert method.state_dict() == {}
    method.commit()
    left = method.state_dict()["memory"]
    torch.testing.assert_close(left + method.decode(first.payload), p)
    second = method.prepare(1, p)
    assert second == SparseMethod(Sparse(share=0.02), d=5000).prepare(0, p + 0.5 * left)


def test_a_damaged_sparse_payload_is_refused():
    method = SparseMethod(Sparse(), d=5000)
    payload = method.encode(vector(5000))
    for bad in (b"", payload[:4], payload[: len(payload) // 2]):
        with pytest.raises(WireError):
            method.decode(bad)


def test_the_predicted_bytes_of_a_sparse_round_are_about_right():
    d = 50 * CHUNK
    for share in (0.01, 0.02, 0.05):
        method = SparseMethod(Sparse(share=share), d=d)
        assert method.round_bytes(2) == pytest.approx(len(method.encode(vector(d))), rel=0.02)


def test_nesterov_is_torchs():
    theta, p = torch.zeros(7), nn.Parameter(torch.zeros(7))
    ours, theirs = Nesterov(lr=0.7, momentum=0.9), torch.optim.SGD([p], lr=0.7, momentum=0.9, nesterov=True)
    for seed in range(5):
        u = vector(7, seed)
        ours.step(theta, whole(u))
        p.grad = -u
        theirs.step()
    torch.testing.assert_close(theta, p.detach(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("budget", [0.2, 0.3, 1.0, 2.5, 10.0, 25.0, 50.0, 1e4])
@pytest.mark.parametrize("steps", [400, 2000, 4000, 100_000])
def test_auto_takes_the_best_that_the_budget_pays_for(budget, steps):
    choice = choose(budget, steps=steps, sizes=SIZES, ranks=4)
    rounds = -(-steps // choice.every)
    assert choice.bytes_per_parameter <= budget
    prices = [bytes_per_parameter(row.wire, steps, steps=steps, sizes=SIZES, ranks=4) for row in ROWS]  # of a round
    affordable = [row for row, price in zip(ROWS, prices, strict=True) if row.rounds <= min(budget // price, steps)]
    if affordable:
        assert choice.worth_it or min(row.loss for row in affordable) >= ALONE - 0.02  # between two rows it may be
        same = [row for row in affordable if row.wire == choice.wire]
        assert rounds <= max(row.rounds for row in ROWS if row.wire == choice.wire)
        assert any((row.outer_lr, row.outer_momentum) == (choice.outer_lr, choice.outer_momentum) for row in same)
    else:
        assert not choice.worth_it
        assert "no measured method fits" in choice.why
    assert ("no gain over training alone" in choice.why) is not choice.worth_it


@pytest.mark.parametrize("row", [row for row in ROWS if all(r.loss > row.loss for r in ROWS if r.rounds < row.rounds)])
def test_with_the_bytes_and_steps_of_a_row_that_is_best_auto_takes_it(row):
    spent = bytes_per_parameter(row.wire, row.every, steps=STEPS, sizes=SIZES, ranks=4)
    choice = choose(spent * 1.0001, steps=STEPS, sizes=SIZES, ranks=4)
    if choice.wire == row.wire:  # a cheaper wire may be better
        assert -(-STEPS // choice.every) == row.rounds
        assert (choice.outer_lr, choice.outer_momentum) == (row.outer_lr, row.outer_momentum)


def test_auto_spends_what_lies_between_two_rows_and_keeps_the_rounds_of_a_longer_run():
    for steps in (STEPS, 100_000):
        for budget, wire in ((18, Wire(compression=1.875, codec="trellis2", codec_down="trellis1")), (35, ONE_BIT)):
            choice = choose(budget, steps=steps, sizes=SIZES, ranks=4)
            assert choice.wire == wire
            assert 0.95 * budget < choice.bytes_per_parameter <= budget
    few, many = (choose(35, steps=n, sizes=SIZES, ranks=4) for n in (STEPS, 100_000))
    assert many.every == pytest.approx(25 * few.every, rel=0.05)


def test_a_larger_budget_never_promises_a_worse_loss():
    budgets, losses = np.geomspace(0.5, 5000, 60), []
    for budget in budgets:
        choice = choose(budget, steps=STEPS, sizes=SIZES, ranks=4)
        if "nats" in choice.why:
            losses.append(float(choice.why.split("(")[1].split(" nats")[0]))
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) >= 15
    assert isinstance(choice.wire, Dense)  # for whoever can pay


def test_a_rank_alone_pays_nothing_for_the_best():
    choice = choose(0.1, steps=STEPS, sizes=SIZES, ranks=1)
    assert choice.bytes_per_parameter == 0
    assert choice.worth_it


def test_rows_of_one_wire_stand_together_from_few_rounds_to_many():
    wires = [repr(wire) for wire, _ in groupby(ROWS, lambda row: row.wire)]
    assert len(wires) == len(set(wires))
    for _, rows in groupby(ROWS, lambda row: row.wire):
        rounds = [row.rounds for row in rows]
        assert rounds == sorted(set(rounds))


def test_every_row_auto_knows_was_measured():
    file = Path(__file__).parents[3] / "benchmarks" / "results" / "language_model.json"
    bed = {"shards": "iid", "world": 4, "layers": 2, "engine": "in-process", "steps": STEPS}
    measured = [row for row in json.loads(file.read_text())["rows"] if all(row[name] == bed[name] for name in bed)]
    alone = [row["validation"][0] for row in measured if row["row"] == "alone"]
    assert pytest.approx(np.mean(alone), abs=1e-4) == ALONE
    for row in ROWS:
        name = {Wire: "sketch:compression={0.compression:g}", Sparse: "sparseloco:share={0.share:g}", Dense: "diloco"}
        text = name[type(row.wire)].format(row.wire)
        if isinstance(row.wire, Dense) and row.wire.codec != "f32":
            text += f"-{row.wire.codec}"
        text += f"{',' if ':' in text else ':'}every={row.every}"
        if isinstance(row.wire, Wire) and row.wire.codec != "sign1":
            text += f",codec={row.wire.codec},codec_down={row.wire.down}"
        losses = [
            one["validation"][0]
            for one in measured
            if (one["row"] + ",").startswith(text + ",")
            and ("codec" in one["row"]) is ("codec" in text)
            and (one["outer_lr"], one["outer_momentum"]) == (row.outer_lr, row.outer_momentum)
        ]
        assert row.loss == pytest.approx(np.mean(losses), abs=1e-4), row


@pytest.mark.parametrize(("lr", "momentum", "stable"), [(0.7, 0.9, False), (*defaults(Signs()), True)])
def test_the_outer_step_of_signs_is_stable_in_a_linear_model_of_the_loop(lr, momentum, stable):
    kept = 2 / np.pi
    for undone in (0.1, 0.3, 0.6, 0.9, 1.0):  # what inner steps undo of a displacement of theta
        theta, M, e, f = np.eye(4)
        p = e - undone * theta
        q = kept * p + f
        moved = momentum * M + kept * q
        loop = [theta + lr * (kept * q + momentum * moved), moved, (1 - kept) * p, (1 - kept) * q]
        largest = np.abs(np.linalg.eigvals(np.stack(loop))).max()
        assert (largest < 1) == (stable or undone < 0.5)


def test_a_run_of_few_rounds_takes_a_smaller_outer_momentum():
    assert defaults(Wire()) == defaults(Wire(), rounds=FEW) == (1.0, 0.8)
    assert defaults(Wire(), rounds=FEW - 1) == (1.0, 0.7)
    assert defaults(Dense(), rounds=10) == (1.0, 0.7)
    assert defaults(Dense(), rounds=FEW) == defaults(Dense()) == (0.7, 0.9)
    assert defaults(Sparse(), rounds=10) == defaults(Sparse())
    assert defaults(Signs())[1] < 0.9  # its memory delays, and 0.9 is unstable


@pytest.mark.parametrize(("budget", "steps"), [(0, 800), (-1, 800), (float("nan"), 800), (1, 0), (1e-4, 800)])
def test_auto_refuses_what_is_no_budget(budget, steps):
    with pytest.raises(ConfigError):
        choose(budget, steps=steps, sizes=SIZES, ranks=4)


def test_one_argument_names_the_wire():
    assert wire_of(None, None, None) == Wire(compression=10)
    assert wire_of(None, None, 30) == Wire(compression=30)
    assert wire_of("sketch", None, 30) == Wire(compression=30)
    assert wire_of("diloco-int4", None, None) == Dense(codec="int4")
    assert wire_of(None, Sparse(share=0.1), None) == Sparse(share=0.1)
    for bad in ((None, Wire(), 10), ("diloco", None, 10), ("diloco", Dense(), None), ("dilco", None, None)):
        with pytest.raises(ConfigError):
            wire_of(*bad)
    with pytest.raises(ConfigError):
        wire_of(None, "int4", None)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_price(name):
    method = make(METHODS[name], sizes=SIZES, key=Key(0), momentum=0.9, moments=None)
    assert 0 < method.round_bytes(4) <= 2 * 4 * sum(SIZES)
    assert method.round_bytes(1) == 0


def test_without_a_process_group_it_says_so():
    model = nn.Linear(3, 3)
    with pytest.raises(RunError, match="init_process_group"):
        SketchedOuter(model, torch.optim.SGD(model.parameters()), key=Key(0))


def test_second_moments_are_those_of_the_inner_optimiser():
    model = nn.Linear(4, 2)
    parameters = list(model.parameters())
    for optimizer, name in (
        (torch.optim.AdamW(parameters), "exp_avg_sq"),
        (torch.optim.RMSprop(parameters), "square_avg"),
    ):
        assert adaptive(optimizer)
        assert second_moments(optimizer, parameters) == [0.0, 0.0]
        model(torch.ones(1, 4)).square().sum().backward()
        optimizer.step()
        expected = [float(optimizer.state[p][name].mean()) for p in parameters]
        assert second_moments(optimizer, parameters) == pytest.approx(expected)
    for optimizer in (torch.optim.SGD(parameters), torch.optim.Adamax(parameters)):
        assert not adaptive(optimizer)


def test_broken_moments_are_forgotten_and_sound_ones_kept():
    model = nn.Linear(4, 2)
    weight, bias = model.parameters()
    optimizer = torch.optim.AdamW([weight, bias])
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.state[weight]["exp_avg"][0, 0] = float("inf")
    drop_broken_state(optimizer, [weight, bias])
    assert weight not in optimizer.state
    assert bias in optimizer.state
