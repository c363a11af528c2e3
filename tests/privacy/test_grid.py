"""The grid of clipped sketches: lengths in integers, noise that is never less than stated, and the lemma behind it."""

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.integrate import quad
from scipy.stats import norm

from desketch.errors import InputError, PrivacyError
from desketch.fed.channel import SketchChannel
from desketch.keys import Key
from desketch.privacy import grid as module
from desketch.privacy.discrete_gaussian import LARGEST
from desketch.privacy.grid import SMOOTHING, Grid
from desketch.privacy.mechanisms import SketchClipClients, SketchClipClientsShared
from desketch.privacy.noise import SeededNoiseNotPrivate

CLIPS = st.sampled_from([1e-12, 0.1, 0.3, 1.0, 7.5, 1e6])
MULTIPLIERS = st.one_of(st.sampled_from([0.01, 0.5, 1.0, 3.7, 100.0, 2.0**20]), st.floats(0.01, 1e4))


def square(steps: torch.Tensor) -> int:
    return sum(int(n) ** 2 for n in steps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=200, deadline=None)
@given(data=st.data(), clip=CLIPS, z=MULTIPLIERS, float32=st.booleans())
def test_no_row_is_longer_than_the_clip(dtype: type, data: st.DataObject, clip: float, z: float, float32: bool) -> None:
    width = 32 if dtype is np.float32 else 64
    numbers = st.one_of(
        st.sampled_from([0.0, 1e-45, 1.2e-38, 0.1, 1.0, 1e20, 3.4028234663852886e38]),
        st.floats(allow_nan=False, allow_infinity=False, width=width),
    )
    rows = torch.from_numpy(data.draw(hnp.arrays(dtype, (2, 12), elements=numbers)))
    grid = Grid.build(clip, z, float32=float32)
    rounded = grid.round(rows)
    most = Fraction(clip) / Fraction(grid.step)
    for row in rounded:
        assert square(row) <= most**2  # add or remove one
    assert square(rounded[0] - rounded[1]) <= 4 * most**2  # replace one by the other
    for row, steps in zip(rows, rounded, strict=True):
        exact = [Fraction(float(v)) for v in row]
        if sum(v**2 for v in exact) <= (Fraction(clip) * (1 - Fraction(1, 10**6)) - 2 * Fraction(grid.step)) ** 2:
            assert all(
                abs(v / Fraction(grid.step) - int(n)) <= Fraction(1, 2) for v, n in zip(exact, steps, strict=True)
            )


def test_a_row_on_the_clip_is_rounded_towards_zero() -> None:
    """Ten equal numbers whose nearest grid points lie outside: rounding to the nearest would lengthen them."""
    grid = Grid(clip=math.sqrt(10) * 2.7, step=1.0, noise=100)
    assert grid.round(torch.full((1, 10), 2.7)).tolist() == [[2] * 10]
    assert grid.round(torch.full((1, 10), 2.6) * torch.eye(10)[:1]).tolist() == [[3] + [0] * 9]


def test_a_clip_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "clip_rows", lambda rows, clip: rows * 1.001)
    with pytest.raises(PrivacyError, match="nothing was released"):
        Grid.build(1.0, 1.0).round(torch.eye(3))


@settings(max_examples=300, deadline=None)
@given(clip=CLIPS, z=MULTIPLIERS, shares=st.integers(1, 10**6), float32=st.booleans())
def test_the_noise_is_never_less_than_stated(clip: float, z: float, shares: int, float32: bool) -> None:
    try:
        grid = Grid.build(clip, z, shares=shares, float32=float32)
    except InputError:
        assert z / math.sqrt(shares) < 1e-4
        return
    wanted = (Fraction(z) * Fraction(clip) / Fraction(grid.step)) ** 2 + SMOOTHING
    assert shares * grid.noise**2 >= wanted
    assert math.frexp(grid.step)[0] == 0.5  # a power of two
    assert 32 <= grid.noise <= LARGEST
    if 2**-5 <= z / math.sqrt(shares) <= 64:
        one_step = 1 / (grid.noise - 1)  # it is rounded up to a whole number of them
        assert math.sqrt(shares * grid.noise**2 / wanted) < 1 + max(1e-5, one_step)
    if float32:
        assert Fraction(clip) / Fraction(grid.step) + 20 * grid.noise < 2**24


@pytest.mark.parametrize("shares", [0, 1, 37, 10**5])
def test_a_top_up_is_worth_the_shares(shares: int) -> None:
    grid = Grid.build(1.0, 1.0, shares=10, float32=True)
    draws = grid.top_up(shares)
    assert sum(s**2 for s in draws) >= shares * grid.noise**2
    assert all(s <= LARGEST for s in draws)
    assert grid.top_up(-3) == []


def test_too_little_noise_is_refused() -> None:
    with pytest.raises(InputError, match="too small"):
        Grid.build(1.0, 1e-9)


def pmf(s: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2 * s * s))
    return p / p.sum()


@pytest.mark.parametrize(("s1", "s2"), [(1.0, 0.5), (2.0, 0.7), (0.8, 0.6)])
def test_the_discrete_gaussian_is_a_rounded_continuous_one(s1: float, s2: float) -> None:
    """The lemma of docs/privacy.md with an error one can see: N_Z drawn around a Gaussian X is N_Z(s1^2 + s2^2)."""
    error = 2 * sum(math.exp(-2 * math.pi**2 * s2**2 * k**2) for k in range(1, 6))
    s = math.hypot(s1, s2)
    exact = pmf(s, 40)[40:46]
    far = np.arange(-40, 41)

    def after(n: int) -> float:
        def density(x: float) -> float:
            chance = math.exp(-((n - x) ** 2) / (2 * s2**2)) / float(np.exp(-((far - x) ** 2) / (2 * s2**2)).sum())
            return float(norm.pdf(x, scale=s1)) * chance

        return float(quad(density, -9 * s1, 9 * s1, epsabs=1e-13, limit=400)[0])

    for n in range(6):
        ratio = after(n) / exact[n]
        assert 1 / (1 + error) - 1e-8 <= ratio <= (1 + error) / (1 - error) + 1e-8
    assert error > 1e-5  # else the test would show nothing
    assert 2 * math.exp(-2 * math.pi**2 * SMOOTHING) < 2e-137


def test_a_sum_of_discrete_gaussians_is_one_but_for_the_same_error() -> None:
    s, reach = 0.8, 40
    ratio = (
        np.convolve(pmf(s, reach), pmf(s, reach))[reach : 3 * reach + 1][reach - 6 : reach + 7]
        / pmf(s * math.sqrt(2), reach)[reach - 6 : reach + 7]
    )
    error = 2 * math.exp(-2 * math.pi**2 * s**2 / 2) * 1.01
    assert (np.abs(np.log(ratio)) <= 3 * error).all()
    assert np.abs(np.log(ratio)).max() > error / 10


@pytest.mark.parametrize("shift", [(40,), (8,), (24, 32), (1, 1, 6)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_its_delta_is_below_that_of_the_stated_gaussian(shift: tuple[int, ...], epsilon: float) -> None:
    """Hockey-stick divergence of N_Z(0, s^2) against its shift, summed out, beside the accountant's Gaussian."""
    s, k = 40.0, np.arange(-400, 401)
    weights, joint = np.zeros(1), np.ones(1)  # 2 s^2 times the loss, an integer, and its probability
    for u in shift:
        sums = (weights[:, None] + ((k - u) ** 2 - k**2)[None, :]).ravel()
        weights, index = np.unique(sums, return_inverse=True)
        joint = np.bincount(index, weights=(joint[:, None] * pmf(s, 400)[None, :]).ravel())
    losses = weights / (2 * s * s)
    delta = float((joint * np.maximum(0.0, 1 - np.exp(epsilon - losses))).sum())
    mu = math.sqrt(sum(u * u for u in shift)) / math.sqrt(s * s - SMOOTHING)
    stated = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta <= stated * (1 + 1e-9) + 1e-15


class TestMechanisms:
    def test_releases_lie_on_the_grid(self) -> None:
        m = SketchClipClients(clip=0.7, noise_multiplier=1.3, sampling_rate=0.5, clients=16)
        released = m.average(torch.randn(5, 64, dtype=torch.float64)) * 8 / m.grid.step
        assert torch.equal(released, released.round())
        assert len(torch.unique(released % 2)) == 2

    def test_shares_cross_a_float32_wire_exactly(self) -> None:
        m = SketchClipClientsShared(clip=0.7, noise_multiplier=1.3, sampling_rate=1.0, clients=4)
        sent = m.guard(torch.randn(4, 64))
        steps = sent.double() / m.grid.step
        assert sent.dtype == torch.float32
        assert torch.equal(steps, steps.round())
        assert float(steps.abs().max()) < 2**24
        assert torch.equal(m.average(sent.double()) * 4 / m.grid.step, steps.sum(0))

    def test_an_absurd_share_overflows_nothing(self) -> None:
        m = SketchClipClientsShared(clip=0.7, noise_multiplier=1.3, sampling_rate=1.0, clients=4)
        sent = m.guard(torch.randn(4, 8))
        sent[0, 0] = 3e38
        assert float(m.average(sent)[0]) > 0

    @pytest.mark.parametrize("kind", [SketchClipClients, SketchClipClientsShared])
    def test_the_claim_names_the_noise(self, kind: Callable[..., SketchClipClients]) -> None:
        m = kind(clip=1.0, noise_multiplier=1.0, sampling_rate=0.5, clients=4)
        assert m.claim["noise"].startswith("discrete Gaussian, 1 x clip 1")

    def test_without_random_bytes_nothing_is_broadcast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        m = SketchClipClients(clip=1.0, noise_multiplier=1.0, sampling_rate=1.0, clients=2)
        channel = SketchChannel(d=64, b=16, key=Key(1), family="srht", codec="f32", mechanism=m)
        frames = channel.encode_updates(1, torch.randn(2, 64), clients=[0, 1], weights=[1.0, 1.0])

        def broken(size: int) -> bytes:
            raise OSError("no entropy")

        monkeypatch.setattr(os, "urandom", broken)
        with pytest.raises(PrivacyError, match="nothing was released"):
            channel.aggregate(1, dict(enumerate(frames)))

    def test_the_spread_of_the_release(self) -> None:
        m = SketchClipClients(
            clip=0.3, noise_multiplier=0.8, sampling_rate=1.0, clients=1, entropy=SeededNoiseNotPrivate(5)
        )
        values = torch.stack([m.average(torch.zeros(1, 500, dtype=torch.float64)) for _ in range(40)]) / (0.8 * 0.3)
        assert abs(float(values.square().mean()) - 1) * math.sqrt(values.numel() / 2) < 4.5
