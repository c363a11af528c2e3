"""The hash families: exact k-wise independence by enumeration, an irreducible field, exact samples."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from desketch.keys import Key
from desketch.sketches.hashing import GF32_POLYNOMIAL, bch_bits, buckets, gf_mul, linear_hash, signs, subset

GF16 = 0b10011


def test_signs_are_five_wise_independent_over_all_seeds():
    """Every five points of GF(2⁴) see each of the 32 sign patterns equally often over all 2⁹ seeds."""
    table = np.array([bch_bits(16, s0, s1, s2, GF16) for s0, s1, s2 in product((0, 1), range(16), range(16))])
    for points in combinations(range(16), 5):
        patterns = table[:, points] @ (1 << np.arange(5))
        assert set(np.bincount(patterns, minlength=32)) == {16}


def test_sign_points_of_the_real_field_are_five_wise_independent():
    """(1, x, x³) of any four of these points are independent: all pairs have different sums. Odd sets follow from 1."""
    x = [*range(600), *(2**k for k in range(10, 31)), *(2**31 - 1 - k for k in range(50))]
    cubes = [gf_mul(gf_mul(a, a), a) for a in x]
    sums = {(a ^ b, c ^ d) for (a, c), (b, d) in combinations(zip(x, cubes, strict=True), 2)}
    assert len(sums) == len(x) * (len(x) - 1) // 2


def test_field_polynomial_is_irreducible():
    """z^(2^32) = z, and z^(2^16) - z is coprime to the polynomial (Rabin)."""
    z, powers = 2, []
    for _ in range(32):
        z = gf_mul(z, z)
        powers.append(z)
    assert powers[31] == 2
    a, b = GF32_POLYNOMIAL, powers[15] ^ 2
    while b:
        while a.bit_length() >= b.bit_length():
            a ^= b << (a.bit_length() - b.bit_length())
        a, b = b, a
    assert a == 1


def test_bch_bits_follow_their_definition():
    s0, s1, s2 = 1, 0xDEADBEEF, 0x12345678
    bits = bch_bits(5000, s0, s1, s2)
    for x in (0, 1, 2, 3, 63, 64, 65, 4095, 4096, 4999):
        cube = gf_mul(gf_mul(x, x), x)
        assert bits[x] == s0 ^ ((s1 & x).bit_count() & 1) ^ ((s2 & cube).bit_count() & 1)


@pytest.mark.parametrize("modulus", [2, 3, 5, 6])
def test_buckets_are_two_wise_independent_over_all_seeds(modulus):
    """Every pair of eight points takes each pair of buckets equally often over all seeds; any words on top keep it."""
    words = np.arange(8) * 5 % modulus
    seeds = list(product(range(modulus), repeat=4))
    table = (np.array([linear_hash(8, modulus, list(a)) for a in seeds]) + words) % modulus
    for i, j in combinations(range(8), 2):
        counts = np.bincount(table[:, i] * modulus + table[:, j], minlength=modulus**2)
        assert set(counts) == {len(seeds) // modulus**2}


def test_floyd_gives_uniform_subsets():
    """From uniform u_j in [b - s + j + 1], every 3-subset of 5 rows comes from equally many seeds."""
    b, s = 5, 3
    counts = Counter()
    for u in product(*(range(b - s + j + 1) for j in range(s))):
        rows: list[int] = []
        for j, value in enumerate(u):
            rows.append(b - s + j if value in rows else value)
        counts[frozenset(rows)] += 1
    assert len(counts) == 10
    assert set(counts.values()) == {6}


@pytest.mark.parametrize(
    ("n", "b"), [(1, 1), (5, 2), (5, 4), (1000, 1), (1000, 500), (1000, 501), (1000, 1000), (4096, 7)]
)
def test_subsets_have_the_size_asked_for(n, b):
    rows = subset(Key(9), n, b)
    assert len(rows) == b
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < n


def test_subsets_are_uniform():
    counts = Counter(tuple(subset(Key(t), 5, 2)) for t in range(4000))
    expected = 4000 / 10
    chi2 = sum((counts[c] - expected) ** 2 / expected for c in combinations(range(5), 2))
    assert chi2 < 33.7  # 1e-4 quantile of 9 degrees of freedom
    inclusion = np.zeros(5)
    for chosen, count in counts.items():
        inclusion[list(chosen)] += count
    assert np.abs(inclusion - 1600).max() < 4.5 * np.sqrt(4000 * 0.4 * 0.6)


def test_hashes_do_not_depend_on_how_many_are_asked_for():
    key = Key(4)
    np.testing.assert_array_equal(signs(key, 5000)[:777], signs(key, 777))
    np.testing.assert_array_equal(buckets(key, 5000, 99)[:777], buckets(key, 777, 99))


def test_signs_and_buckets_are_balanced():
    key, n = Key(12), 200_000
    assert abs(signs(key, n).sum()) < 4.5 * np.sqrt(n)
    counts = np.bincount(buckets(key, n, 100), minlength=100)
    chi2 = ((counts - n / 100) ** 2 / (n / 100)).sum()
    assert abs(chi2 - 99) < 4.5 * np.sqrt(2 * 99)
