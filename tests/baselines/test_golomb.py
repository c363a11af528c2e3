from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desketch.baselines.golomb import decode_positions, encode_positions, pack_bits, remainder_bits, unpack_bits
from desketch.errors import InputError, WireError


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.data())
def test_positions_survive_the_trip(d, data):
    positions = np.array(sorted(data.draw(st.sets(st.integers(0, d - 1), min_size=1, max_size=min(d, 60)))))
    bits = unpack_bits(pack_bits(encode_positions(positions, d)))
    got, rest = decode_positions(bits, len(positions), d)
    np.testing.assert_array_equal(got, positions)
    assert len(rest) < 8
    assert not rest.any()


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.binary(max_size=60))
def test_any_bytes_decode_to_valid_positions_or_are_refused(k, payload):
    d = 500
    try:
        positions, _ = decode_positions(unpack_bits(payload), k, d)
    except WireError:
        return
    assert len(positions) == k
    assert (np.diff(positions) > 0).all()
    assert 0 <= positions[0] <= positions[-1] < d


@pytest.mark.parametrize("density", [1 / 20, 1 / 100, 1 / 400, 1 / 1000])
def test_the_code_is_within_a_twentieth_of_the_entropy(density):
    d = 200_000
    k = round(density * d)
    positions = np.sort(np.random.default_rng(0).choice(d, size=k, replace=False))
    entropy = -(density * math.log2(density) + (1 - density) * math.log2(1 - density)) / density
    assert len(encode_positions(positions, d)) / k < 1.05 * entropy


def test_remainder_bits_are_the_cheapest_choice():
    """Against a search over m of the expected code length m + 1/(1 - (1-p)^(2^m))."""
    for d in (100, 10_000, 1_000_000):
        for k in (1, 7, d // 50, d // 3):
            p = k / d
            cost = [m + 1 / (1 - (1 - p) ** (2**m)) for m in range(24)]
            assert cost[remainder_bits(k, d)] <= min(cost) * 1.02


@pytest.mark.parametrize("positions", [[3, 3], [5, 4], [-1, 2], [2, 10]])
def test_impossible_positions_are_refused(positions):
    with pytest.raises(InputError):
        encode_positions(np.array(positions), 10)


@pytest.mark.parametrize("k", [0, 11])
def test_impossible_sparsity_is_refused(k):
    with pytest.raises(InputError, match="k"):
        remainder_bits(k, 10)
