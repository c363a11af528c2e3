"""The trellis code: its vectors by their definition, its search by all vectors, its error by the bound of any code."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from desketch.core import compiled
from desketch.errors import WireError
from desketch.fed import Update
from desketch.fed.auto_step import AutoStep
from desketch.keys import Key
from desketch.wire import Header, Wire, decode, decode_extra, encode, pack
from desketch.wire.trellis import CIRCLE, FEWEST, MEMORY, RATES, nearest, table, vectors

ISAS = (*compiled.isas(), None)  # None: the reference
SIZES = (1, 2, 3, 7, 17, 27, 28, 29, 30, 31, 64, 212, 256, CIRCLE + 5, 3 * CIRCLE + 7)


def sample(n: int, b: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, b)).astype(np.float32)


def kept(x: np.ndarray, y: np.ndarray) -> float:
    """The mean share of the energy of x that a multiple of y has."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(np.mean((x * y).sum(1) ** 2 / (np.square(x).sum(1) * np.square(y).sum(1))))


@pytest.mark.parametrize("V", RATES)
def test_the_table_is_odd_nearly_gaussian_and_does_not_change(V):
    rows = table(V).astype(np.int64)
    assert rows.shape == (1 << MEMORY, V)
    assert (rows % 2 == 1).all()
    assert abs(rows.mean()) < 4 * 37 / np.sqrt(rows.size)
    assert rows.std() == pytest.approx(37, rel=0.1)
    assert {1: 75, 2: 1, 3: 41}[V] == rows[0, 0]


@pytest.mark.parametrize("V", RATES)
@pytest.mark.parametrize("b", SIZES)
def test_bit_i_says_the_row_of_the_ten_bits_up_to_it(V, b):
    T = -(-b // V)
    bits = np.random.default_rng(b).integers(0, 2, T)
    expected: list[int] = []
    for start in range(0, T, CIRCLE):
        circle = bits[start : start + CIRCLE]
        for i in range(len(circle)):
            state = sum(int(circle[(i - age) % len(circle)]) << (MEMORY - 1 - age) for age in range(MEMORY))
            expected += table(V)[state].tolist()
    packed = np.packbits(bits.astype(np.uint8), bitorder="little")[None]
    assert vectors(packed, b, V)[0].tolist() == expected[:b]


@pytest.mark.parametrize("isa", ISAS, ids=str)
@pytest.mark.parametrize("V", RATES)
def test_every_search_finds_the_bits_of_the_reference(V, isa, monkeypatch):
    for b in SIZES:
        x = sample(3, b, seed=b) * np.float32([[1.0], [1e-30], [1e30]])
        x[0, :: max(1, b // 3)] *= 40  # beyond the largest goal
        monkeypatch.setenv("DESKETCH_KERNELS", "reference")
        expected = nearest(x, V)
        monkeypatch.setenv("DESKETCH_KERNELS", "compiled" if isa else "reference")
        monkeypatch.setenv("DESKETCH_ISA", isa or "")
        for workers in (1, 3):
            monkeypatch.setattr(compiled, "workers", lambda size, limit, workers=workers: workers)
            assert nearest(x, V).tobytes() == expected.tobytes(), b


@pytest.mark.parametrize("V", RATES)
@pytest.mark.parametrize("T", [1, 5, 9, 13])
def test_the_vector_found_is_as_near_as_any(V, T):
    """Of a short circle the nearest; of one that a path has to close, none that is nearer than that."""
    x = sample(20, T * V, seed=T)
    words = np.array(list(product((0, 1), repeat=T)), dtype=np.uint8)
    every = vectors(np.packbits(words, axis=1, bitorder="little"), T * V, V).astype(np.float64)
    unit = {1: 43, 2: 52, 3: 61}[V] / np.sqrt(np.square(x.astype(np.float64)).mean(axis=1, keepdims=True))
    goals = np.rint(x * unit)
    found = vectors(nearest(x, V), T * V, V).astype(np.float64)
    cost = np.square(every[None] - goals[:, None]).sum(axis=2).min(axis=1)
    mine = np.square(found - goals).sum(axis=1)
    if T < MEMORY:
        np.testing.assert_array_equal(mine, cost)
    else:
        assert (mine >= cost).all()


@pytest.mark.parametrize("V", RATES)
def test_a_code_vector_keeps_nearly_what_any_code_can(V):
    """The share of a Gaussian vector that R bits a number can keep is at most 1 - 4^-R; signs keep 2/pi of it."""
    bound, x = 1 - 4 ** (-1 / V), sample(60, 512)
    share = kept(x, vectors(nearest(x, V), 512, V))
    assert 0.9 * bound < share < bound
    if V == 1:
        assert share > 1.1 * kept(x, np.sign(x))


def test_short_circles_are_cautioned_against():
    for V in RATES:
        wire = Wire(b=FEWEST * V, codec=f"trellis{V}")
        assert wire.caution(10**4) is None
        caution = Wire(b=FEWEST * V - 1, codec=f"trellis{V}").caution(10**4)
        assert f"use a b of at least {FEWEST * V}" in caution
    x, few = sample(200, 60), sample(200, 30)
    assert kept(x, vectors(nearest(x, 3), 60, 3)) > 1.4 * kept(few, vectors(nearest(few, 3), 30, 3))


def test_a_scale_or_number_that_is_not_finite_is_refused():
    header = Header(run=1, round=1, family="srht", d=900, b=64, key=Key(1), codec="trellis2", tiny=1, extra=1)
    payload = bytes.fromhex("c0fd") + b"\xa7\x31\xf0\x5c" + bytes(3)  # code 1015, the last
    assert np.isfinite(decode(pack(header, b"\xc0\xa0" + payload[2:]), header)[1]).all()
    with pytest.raises(WireError, match="scale"):
        decode(pack(header, b"\x00\xfe" + payload[2:]), header)  # code 1016
    with pytest.raises(WireError, match="scale"):
        decode(pack(header, payload), header)  # its numbers are infinite
    with pytest.raises(WireError, match="extra"):
        decode_extra(pack(header, bytes(6) + b"\x7c" + bytes(2)), header)


@pytest.mark.parametrize("sent", [0.0, 1.0, -0.2, 1.124, 1.2, -1.74, 1e-7, -3e4, 1e9, -1e9])
def test_a_tiny_number_is_within_an_eighth(sent):
    header = Header(run=1, round=1, family="srht", d=900, b=64, key=Key(1), codec="trellis1", tiny=1)
    (got,) = decode_extra(encode(sample(1, 64)[0], header, rounding=Key(3), extra=[sent]), header)
    assert got == pytest.approx(np.clip(sent, -57344, 57344), rel=1 / 8, abs=2.0**-17)


@pytest.mark.parametrize(
    ("up", "down", "bits"), [("sign1", None, 1), ("int8", "trellis2", 0.75), ("trellis3", "trellis2", 5 / 12)]
)
def test_with_fewer_bits_a_number_the_automatic_step_aims_less_far_past_the_minimum(up, down, bits):
    assert Wire(codec=up, codec_down=down).bits == pytest.approx(bits)
    step = AutoStep()
    step.eta = 1.0
    update = Update(torch.ones(16), 1.0, 4, along=-AutoStep.past * bits, bits=bits)
    step.observe(torch.ones(16), update, lambda u: (0.0, 1.0))
    assert step.eta == pytest.approx(1.0, abs=1e-4)
