"""The sampler of the discrete Gaussian: exact coins, the closed form, tails, independence, the source of its bits."""

import math
import os
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest, norm

from desketch.errors import InputError, PrivacyError
from desketch.keys import Key
from desketch.privacy.discrete_gaussian import LARGEST, bernoulli, bernoulli_exp, coins, discrete_gaussian
from desketch.privacy.discrete_gaussian import discrete_laplace as laplace
from desketch.privacy.noise import OsEntropy, SeededNoiseNotPrivate

Draw = Callable[[int], bytes]


def all_digits_then(later: int) -> Draw:
    """Every first digit once, and then the same digit for ever."""
    script: Iterator[bytes] = iter([np.arange(1 << 16, dtype=np.uint16).tobytes()])

    def draw(size: int) -> bytes:
        return next(script, np.full(size // 2, later, np.uint16).tobytes())

    return draw


@pytest.mark.parametrize(
    ("p", "q"), [(1, 2), (1, 3), (2, 3), (1, 7), (5, 5), (0, 9), (65535, 65536), (2**46, 2**47 - 1)]
)
@pytest.mark.parametrize("later", [0, (1 << 16) - 2])
def test_coins_are_exact_over_all_first_digits(p: int, q: int, later: int) -> None:
    """p/q of the digits decide for, floor; the one that p/q falls into is decided by what follows."""
    first, rest = divmod(p << 16, q)
    expected = first + (rest > 0 and (rest << 16) > later * q)
    many = np.full(1 << 16, p, np.int64)
    assert int(bernoulli(all_digits_then(later), many, q).sum()) == expected
    assert int(coins(all_digits_then(later), 1 << 16, p, q).sum()) == expected


@pytest.mark.parametrize(("p", "q"), [(0, 5), (1, 5), (4, 5), (5, 5)])
def test_bernoulli_exp(p: int, q: int) -> None:
    n = 200_000
    rate = bernoulli_exp(SeededNoiseNotPrivate(1).draw, np.full(n, p, np.int64), q).mean()
    wanted = math.exp(-p / q)
    assert abs(rate - wanted) <= 4.5 * math.sqrt(wanted * (1 - wanted) / n)


def _p_value(values: np.ndarray, weight: Callable[[np.ndarray], np.ndarray], reach: int) -> float:
    """Chi-square against probabilities proportional to ``weight``, rare values together."""
    k = np.arange(-60 * reach, 60 * reach + 1)
    p = weight(k.astype(float))
    p /= p.sum()
    common = p * len(values) >= 10
    counts = np.array([np.sum(values == one) for one in k[common]])
    seen, wanted = (
        np.append(counts, len(values) - counts.sum()),
        np.append(p[common], 1 - p[common].sum()) * len(values),
    )
    return float(chi2.sf(((seen - wanted) ** 2 / np.maximum(wanted, 1e-9))[wanted > 5].sum(), np.sum(wanted > 5) - 1))


@pytest.mark.parametrize("s", [1, 2, 3, 5, 12])
def test_the_closed_form(s: int) -> None:
    values = discrete_gaussian(SeededNoiseNotPrivate(s).draw, 200_000, s)
    assert _p_value(values, lambda k: np.exp(-(k**2) / (2 * s * s)), s) > 1e-4
    values = laplace(SeededNoiseNotPrivate(s).draw, 100_000, s)
    assert _p_value(values, lambda k: np.exp(-np.abs(k) / s), s) > 1e-4


def check_large(draw: Draw, n: int, s: int) -> None:
    """Where s is large the grid is not seen by n draws: compare with the continuous law."""
    values = np.concatenate([discrete_gaussian(draw, min(n - i, 10**6), s) for i in range(0, n, 10**6)]) / s
    assert len(values) == n
    assert kstest(values, "norm").pvalue > 1e-4
    assert abs(values.mean()) * math.sqrt(n) < 4.5
    assert abs((values**2).mean() - 1) * math.sqrt(n / 2) < 4.5
    for z in (1.0, 2.0, 3.0, 4.0, 4.5, 5.0):
        for tail in (values > z, values < -z):
            wanted = n * norm.sf(z)
            if wanted >= 2:
                assert abs(tail.sum() - wanted) < 4.5 * math.sqrt(wanted) + 2
    assert np.abs(values).max() < 7
    for lag in (1, 2, 7, n // 2):
        assert abs((values[lag:] * values[:-lag]).sum()) / math.sqrt(n - lag) < 4.5
        sizes = np.abs(values) - math.sqrt(2 / math.pi)
        assert abs((sizes[lag:] * sizes[:-lag]).sum()) / math.sqrt(n - lag) / (1 - 2 / math.pi) < 4.5


@pytest.mark.parametrize("s", [5000, 1 << 20, (1 << 20) + 12_345])
def test_large_parameters(s: int) -> None:
    check_large(SeededNoiseNotPrivate(s).draw, 300_000, s)


@pytest.mark.slow
def test_ten_million_draws() -> None:
    check_large(os.urandom, 10_000_000, 1_234_567)


def test_low_bits_are_uniform() -> None:
    """A float Gaussian times a scale has holes among its last bits; a discrete one has none."""
    values = discrete_gaussian(SeededNoiseNotPrivate(8).draw, 100_000, 1 << 20)
    for modulus in (2, 3, 16):
        counts = np.bincount(values % modulus, minlength=modulus)
        assert chi2.sf(((counts - len(values) / modulus) ** 2).sum() * modulus / len(values), modulus - 1) > 1e-4


def test_any_number_of_draws() -> None:
    for n in (0, 1, 2, 17):
        assert discrete_gaussian(os.urandom, n, 3).shape == (n,)
    assert OsEntropy().discrete_normal(4, 5, s=9).shape == (4, 5)
    assert OsEntropy().discrete_normal(4, s=9).dtype == torch.int64


@pytest.mark.parametrize("s", [0, -1, LARGEST + 1, 2.0, True])
def test_bad_parameters(s: int) -> None:
    with pytest.raises(InputError, match="whole number"):
        discrete_gaussian(os.urandom, 3, s)


def test_no_seed_and_no_key_reaches_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal seeds everywhere: the noise differs, and no global generator moved. Equal OS bytes: the noise is equal."""

    def seeded() -> torch.Tensor:
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        Key(7).words(16)
        states = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
        noise = OsEntropy().discrete_normal(2048, s=1 << 20)
        assert torch.equal(states[0], torch.get_rng_state())
        assert states[1:] == (np.random.get_state()[1].tobytes(), random.getstate())
        return noise

    first, second = seeded(), seeded()
    assert int((first == second).sum()) < 5
    correlation = float((first.double() * second.double()).sum()) / 4.0**20 / math.sqrt(2048)
    assert abs(correlation) < 5.5

    def fixed() -> torch.Tensor:
        stream = SeededNoiseNotPrivate(3)
        monkeypatch.setattr(os, "urandom", stream.draw)
        return OsEntropy().discrete_normal(2048, s=1 << 20)

    assert torch.equal(fixed(), fixed())


@pytest.mark.parametrize("failure", [OSError("no entropy"), NotImplementedError("no generator"), None])
def test_without_random_bytes_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> None:
    def broken(size: int) -> bytes:
        if failure is not None:
            raise failure
        return bytes(size // 2)  # a short read

    monkeypatch.setattr(os, "urandom", broken)
    for use in (
        lambda: OsEntropy().discrete_normal(3, s=9),
        lambda: OsEntropy().normal(3, std=1.0),
        lambda: OsEntropy().uniform(3),
    ):
        with pytest.raises(PrivacyError, match="operating system"):
            use()
