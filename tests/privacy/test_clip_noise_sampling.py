import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from desketch.errors import InputError
from desketch.keys import Key
from desketch.privacy.clip import clip_rows
from desketch.privacy.noise import Entropy, OsEntropy, SeededNoiseNotPrivate
from desketch.privacy.sampling import poisson_sample

EXTREMES = {
    np.float64: [0.0, 5e-324, 2.2e-308, 1e-200, 1.0, 1e154, 1.7976931348623157e308],
    np.float32: [0.0, 1e-45, 1.2e-38, 1.0, 1e20, 3.4028235e38],
}


def exact_square_norm(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in row), Fraction(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_clipped_norm_never_exceeds_the_clip(dtype: type, data: st.DataObject) -> None:
    """Checked in exact rational arithmetic, near zero, among the subnormals and at the largest numbers."""
    width = 32 if dtype is np.float32 else 64
    numbers = st.one_of(st.sampled_from(EXTREMES[dtype]), st.floats(allow_nan=False, allow_infinity=False, width=width))
    row = data.draw(hnp.arrays(dtype, st.integers(1, 40), elements=numbers))
    clip = data.draw(st.sampled_from([1e-12, 0.3, 1.0, 1e6]))
    out = clip_rows(torch.from_numpy(row), clip).numpy()
    assert exact_square_norm(out) <= Fraction(clip) ** 2
    if exact_square_norm(row) <= Fraction(clip * (1 - 1e-6)) ** 2:
        assert np.array_equal(out, row)
    elif exact_square_norm(row) > Fraction(clip) ** 2:
        assert math.sqrt(exact_square_norm(out)) >= clip * (1 - 1e-6)


def test_largest_double_with_a_subnormal_factor() -> None:
    """1 / 1.8e308 is subnormal: a factor formed that way rounds by percents and breaks the bound."""
    row = torch.full((7,), 1.7976931348623157e308, dtype=torch.float64)
    for clip in (1e-3, 1.0, 3.0):
        out = clip_rows(row, clip)
        assert exact_square_norm(out.numpy()) <= Fraction(clip) ** 2
        assert float(out.norm()) == pytest.approx(clip)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_rows(dtype: torch.dtype) -> None:
    """The norm of many numbers rounds too; in float64 that is more than the rounding of the clip itself."""
    generator = torch.Generator().manual_seed(1)
    for scale in (1e-30, 1.0, 1e30):
        row = torch.rand(30_000, dtype=dtype, generator=generator) * scale
        assert exact_square_norm(clip_rows(row, 0.3e-30).numpy()) <= Fraction(0.3e-30) ** 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_non_finite_is_refused(bad: float, dtype: torch.dtype) -> None:
    rows = torch.ones(3, 4, dtype=dtype)
    rows[1, 2] = bad
    with pytest.raises(InputError, match="1 of 3 vectors"):
        clip_rows(rows, 1.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, 1e-320, True])
def test_bad_clip(clip: float) -> None:
    with pytest.raises(InputError, match="clip"):
        clip_rows(torch.ones(3), clip)


def test_integers_are_refused() -> None:
    with pytest.raises(InputError, match="floating"):
        clip_rows(torch.ones(3, dtype=torch.int64), 1.0)


def test_neither_key_nor_global_seeds_touch_the_noise() -> None:
    """Same public key, same seeds everywhere: the noise still differs, and the seeds' own streams do not predict it."""

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        Key(7).words(16)
        state = torch.get_rng_state()
        noise, sample = OsEntropy().normal(4096, std=1.0), poisson_sample(4096, 0.5, OsEntropy())
        assert torch.equal(state, torch.get_rng_state())
        return noise, sample

    (noise, sample), (again, sample_again) = draw(), draw()
    assert not torch.equal(sample, sample_again)
    torch.manual_seed(7)
    words = Key(7).words(8192).astype(np.float64) / 2**32
    guesses = [
        torch.randn(4096),
        again,
        torch.from_numpy(np.sqrt(-2 * np.log(words[:4096] + 1e-12)) * np.cos(6.283 * words[4096:])),
    ]
    for guess in guesses:
        z = float((noise.double() * guess.double()).sum()) / 64
        assert abs(z) < 5.5


def test_noise_is_standard_normal() -> None:
    from scipy.stats import kstest

    values = SeededNoiseNotPrivate(3).normal(200_001, std=2.0, dtype=torch.float64).numpy() / 2
    assert kstest(values, "norm").pvalue > 1e-4
    assert abs(values.mean()) * math.sqrt(values.size) < 4.5
    assert abs((values**2).mean() - 1) * math.sqrt(values.size / 2) < 4.5
    halves = values[:100_000] * values[100_001:]
    assert abs(halves.sum()) / math.sqrt(halves.size) < 4.5


def test_extreme_uniforms_stay_inside_the_open_interval() -> None:
    class Constant(Entropy):
        def __init__(self, byte: int) -> None:
            self.byte = byte

        def draw(self, size: int) -> bytes:
            return bytes([self.byte]) * size

    for byte in (0, 255):
        assert 0 < Constant(byte).uniform(1)[0] < 1
        assert torch.isfinite(Constant(byte).normal(4, std=1.0)).all()


def test_seeded_noise_is_loud_and_repeats() -> None:
    first, second = SeededNoiseNotPrivate(1), SeededNoiseNotPrivate(1)
    assert torch.equal(first.normal(9, std=1.0), second.normal(9, std=1.0))
    assert not torch.equal(first.normal(9, std=1.0), SeededNoiseNotPrivate(1).normal(9, std=1.0))
    assert "NOT PRIVATE" in first.not_private
    assert OsEntropy().not_private == ""


def test_poisson_sample_rate_and_independence() -> None:
    entropy = SeededNoiseNotPrivate(11)
    n, q, draws = 50, 0.3, 4000
    inside = torch.zeros(draws, n)
    for i in range(draws):
        inside[i, poisson_sample(n, q, entropy)] = 1
    assert abs(float(inside.mean()) - q) * math.sqrt(n * draws / (q * (1 - q))) < 4.5
    sizes = inside.sum(1)
    assert float(sizes.var()) == pytest.approx(n * q * (1 - q), rel=0.12)


def test_poisson_sample_edges() -> None:
    assert poisson_sample(5, 1.0, OsEntropy()).tolist() == [0, 1, 2, 3, 4]
    assert poisson_sample(3, 1e-15, OsEntropy()).numel() == 0
    for n, q in ((0, 0.5), (3, 0.0), (3, 1.1), (3, math.nan)):
        with pytest.raises(InputError):
            poisson_sample(n, q, OsEntropy())


def test_bad_standard_deviation() -> None:
    for std in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="standard deviation"):
            OsEntropy().normal(3, std=std)
