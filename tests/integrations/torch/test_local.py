"""Ranks inside one process: the same rounds, bytes and losses as real gloo ranks; memories that deliver the rest."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch

from desketch import Key, Wire
from desketch.errors import RunError
from desketch.fed.open_step import gain
from desketch.integrations.torch import Dense, Signs, Sparse, exchange
from desketch.integrations.torch import round as round_
from desketch.integrations.torch.agreement import digest
from desketch.integrations.torch.local import local_ranks, together
from desketch.integrations.torch.methods import make, sketch
from desketch.integrations.torch.methods.base import joined
from desketch.integrations.torch.round import HELLO_BYTES, exchange_update, report
from desketch.sketches import Weighted, draw
from desketch.theory.weights import adam_weights

SIZES, W = [2000, 3001], 4
THIN = Wire(compression=4, codec="trellis2", codec_down="trellis1")
WIRES = [Wire(compression=4), THIN, Dense(), Dense(codec="int4"), Sparse(share=0.05), Signs(), Signs(decay=0.5)]


def methods(wire, *, moments=(1e-4, 1e-2)):
    return [make(wire, sizes=SIZES, key=Key(1), momentum=0.9, moments=lambda: list(moments)) for _ in range(W)]


def a_round(ranks, owners, t, deltas, theta=None):
    theta = torch.zeros(3) if theta is None else theta

    def one(exchange):
        method = owners[exchange.rank]
        return joined(exchange_update(method, theta, report(method, t, deltas[exchange.rank].clone()), exchange)[0])

    return together(ranks, one)


def updates(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(sum(SIZES), generator=generator) for _ in range(W)]


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_everyone_decodes_the_same_update_for_the_predicted_bytes(wire):
    ranks, owners = local_ranks(W), methods(wire)
    for t in range(2):
        us = a_round(ranks, owners, t, updates(t))
        assert all(torch.equal(us[0], u) for u in us)
    sent = sum(one.sent for one in ranks) / W / 2
    assert sent == pytest.approx(owners[0].round_bytes(W) + (W - 1) * HELLO_BYTES, rel=0.03)


@pytest.mark.parametrize("wire", [w for w in WIRES if not isinstance(w, Sparse)], ids=str)
def test_chunks_change_neither_the_bytes_that_are_predicted_nor_that_all_ranks_agree(wire, monkeypatch):
    monkeypatch.setattr(exchange, "_CHUNK", 256)
    test_everyone_decodes_the_same_update_for_the_predicted_bytes(wire)


def test_a_long_vector_is_sketched_in_blocks_each_with_its_own_draw(monkeypatch):
    monkeypatch.setattr(sketch, "_BLOCK", 2000)  # 5001 numbers in 3 blocks, the first tensor in two of them
    wire = Wire(compression=4, codec="f32")
    ranks, owners, deltas = local_ranks(W), methods(wire), updates()
    u, mean = a_round(ranks, owners, 0, deltas)[0], sum(deltas) / W
    key, expected = Key(1).fold_in("outer", 0), []
    D = adam_weights([1e-4, 1e-2], SIZES)
    for j, (a, c, b, sizes) in enumerate(
        [(0, 1667, 416, [1667]), (1667, 3334, 417, [333, 1334]), (3334, 5001, 417, [1667])]
    ):
        R = draw("srht", d=c - a, b=b, key=key.fold_in("block", j) if j else key)
        one = Weighted(R, D if len(sizes) == 2 else [D[j // 2]], sizes)
        expected.append(
            one.desketch(one.sketch(mean[a:c])) * gain(5001 / 1250, up=0.0, down=0.0, ranks=W, momentum=0.9)
        )
    torch.testing.assert_close(u, torch.cat(expected), rtol=2e-3, atol=2e-3)  # the notes carry v in half precision


def test_a_sketch_never_holds_a_vector_as_long_as_the_model(monkeypatch):
    monkeypatch.setattr(sketch, "_BLOCK", 2000)
    monkeypatch.setattr(round_, "_CUT", 2000)
    ranks, owners, deltas = local_ranks(W), methods(Wire(compression=4)), updates()
    read = []

    class Cuts:
        def __init__(self, delta):
            self.delta = delta

        def __getitem__(self, cut):
            read.append(len(self.delta[cut]))
            return self.delta[cut].clone()

    def one(exchange):
        method = owners[exchange.rank]
        mine = report(method, 0, Cuts(deltas[exchange.rank]))
        return list(exchange_update(method, torch.zeros(3), mine, exchange)[0])

    pieces = together(ranks, one)[0]
    assert max(read) <= 2000
    assert sum(read) == 2 * W * sum(SIZES)  # looked at, then sketched
    assert [place.stop - place.start for place, _ in pieces] == [len(u) for _, u in pieces] == [1667] * 3
    assert torch.equal(joined(pieces), a_round(ranks, methods(Wire(compression=4)), 0, deltas)[0])


@pytest.mark.parametrize(("d", "b"), [(1, 1), (2**20, 3), (2**20 + 1, 100_000), (10**7, 4 * 10**6), (3 * 2**20, 2)])
def test_blocks_cover_everything_once_and_none_is_empty(d, b):
    cuts = sketch.blocks(d, b)
    assert [cut.start for cut, _ in cuts] == [0, *(cut.stop for cut, _ in cuts[:-1])]
    assert (cuts[-1][0].stop, cuts[-1][1].stop) == (d, b)
    assert all(row.stop > row.start for _, row in cuts)
    assert len(cuts) == min(b, -(-d // 2**20))


def test_what_signs_leave_out_is_delivered_later():
    ranks, owners, deltas = local_ranks(W), methods(Signs()), updates()
    mean, total, errors = sum(deltas) / W, torch.zeros(sum(SIZES)), []
    for t in range(24):
        total += a_round(ranks, owners, t, deltas)[0]
        errors.append(float((total / (t + 1) - mean).norm() / mean.norm()))
    assert errors[-1] < 0.12 < errors[0]
    assert errors[-1] < 2.2 * errors[11] * 12 / 24  # falls as 1/t: nothing is lost, in either direction


def test_without_its_memory_on_both_ways_something_is_lost():
    for forgotten in ("own", "part"):
        ranks, owners, deltas = local_ranks(W), methods(Signs()), updates()
        mean, total = sum(deltas) / W, torch.zeros(sum(SIZES))
        for t in range(24):
            for method in owners:
                method.feedback._memory.pop(forgotten, None)
            total += a_round(ranks, owners, t, deltas)[0]
        assert float((total / 24 - mean).norm() / mean.norm()) > 0.15


def test_a_failed_round_moves_no_memory_and_ends_everybody():
    ranks, owners, deltas = local_ranks(W), methods(Signs()), updates()
    a_round(ranks, owners, 0, deltas)
    before = {name: value.clone() for name, value in owners[0].state_dict().items()}

    def die(exchange):
        if exchange.rank == 2:
            raise ValueError("gone")
        return exchange.gather(b"here")

    with pytest.raises(ValueError, match="gone"):
        together(local_ranks(W), die)
    with pytest.raises(RunError, match="differ in theta"):
        together(
            local_ranks(W),
            lambda e: exchange_update(
                owners[e.rank], torch.full((3,), float(e.rank)), report(owners[e.rank], 1, deltas[e.rank].clone()), e
            ),
        )
    after = owners[0].state_dict()
    assert set(before) == set(after) == {"own", "part"}
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_round_that_fails_half_way_moves_no_memory():
    ranks, owners, deltas = local_ranks(W), methods(Signs()), updates()
    a_round(ranks, owners, 0, deltas)
    before = {name: value.clone() for name, value in owners[1].state_dict().items()}

    def broken(exchange):
        if exchange.rank == 0:
            exchange._all_to_all = None  # its second collective fails, after everyone has encoded
        method = owners[exchange.rank]
        return exchange_update(method, torch.zeros(3), report(method, 1, deltas[exchange.rank].clone()), exchange)

    with pytest.raises(TypeError):
        together(ranks, broken)
    after = owners[1].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("n", [1, 4095, 4096, 10_000])
def test_the_digest_sees_one_bit_and_a_move(n):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    y = x.clone()
    y.view(torch.int32)[n // 2] ^= 1
    assert digest(x) == digest(x.clone()) != digest(y)
    if n > 1:
        assert digest(x) != digest(x.roll(1))


def test_the_in_process_engine_gives_the_losses_and_bytes_of_real_ranks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import lm_batched
    import lm_ranks

    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(20)]
    (tmp_path / "text").write_text(" ".join(draw.choices(words, k=3000)))
    shape = {"layers": 1, "width": 32, "context": 16, "batch": 4, "steps": 9, "lr": 3e-3, "warmup": 0.2, "windows": 64}
    where = {"seed": 1, "link": None, "world": 2, "shards": "iid", "texts": [str(tmp_path / "text")]}
    job = {"row": "signs:every=3", **where, **shape}
    inside, outside = lm_batched.run(job, compiled=False), lm_ranks.run(job)
    assert inside["d"] == outside["d"]
    assert inside["rounds"] == outside["rounds"] == 3
    # the ranks also compare their arguments, once
    assert 0 < outside["bytes"] - inside["bytes"] < 4000
    for part in ("validation", "test"):
        assert inside[part] == pytest.approx(outside[part], abs=2e-3)
    assert inside["validation"][0] < 3.0
    assert "lm_bed" in sys.modules


def test_demo_sends_the_largest_dct_entries_of_every_chunk_and_keeps_the_rest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import lm_batched
    import lm_demo

    m = torch.randn(2, 130, 96, generator=torch.Generator().manual_seed(1))
    whole, few = lm_demo.Chunks((130, 96), 1.0), lm_demo.Chunks((130, 96), 0.01)
    assert whole.sides == [26, 48]  # the largest divisors up to 64: 26 of 130 and 48 of 96
    torch.testing.assert_close(whole.fastest(m), m, rtol=1e-4, atol=1e-5)
    # one smooth wave over a chunk is one entry of its transform
    wave = torch.cos(torch.pi / 26 * (torch.arange(26) + 0.5) * 3)[:, None] * torch.ones(48)
    one = lm_demo.Chunks((26, 48), 1e-9)
    assert one.k == 1
    torch.testing.assert_close(one.fastest(wave[None]), wave[None], rtol=1e-4, atol=1e-5)
    q = few.fastest(m)
    assert float((q * (m - q)).sum().abs() / q.square().sum()) < 1e-4  # a projection: what is kept back is orthogonal
    (tmp_path / "text").write_text("the quick brown fox " * 300)
    job = {"row": "demo:share=0.02,lr=0.002", "seed": 1, "world": 2, "shards": "iid", "texts": [str(tmp_path / "text")]}
    shape = {"layers": 1, "width": 16, "context": 16, "batch": 4, "steps": 30, "lr": 3e-3, "warmup": 0.0, "windows": 16}
    result = lm_batched.run({**job, **shape}, compiled=False)
    assert result["curve"][-1][2] < result["curve"][0][2] - 0.1
    assert 0 < result["bytes"] < 30 * 2 * 2 * result["d"] * 0.2
