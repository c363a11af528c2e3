"""Bounds: closed forms of linear problems, the hypercube probability by simulation, and attacks that meet them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn
from torch.nn.functional import mse_loss

from desketch import Key, draw
from desketch.attack.bounds import (
    bayesian_at,
    box_probability,
    certify,
    cramer_rao,
    noise_for_ceiling,
    van_trees,
)
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.optimise import build_solver, reconstruct
from desketch.attack.prior import GaussianPrior
from desketch.attack.quality import mse_of, psnr
from desketch.attack.update import LocalUpdate


def test_certificate_counts(world):
    objective, x = world.observe(world.update(), 75)
    seen = certify(objective, x, world.prior)
    assert (seen.unknowns, seen.measurements, seen.rank, seen.rank_unsketched) == (64, 75, 64, 64)
    assert seen.identifiable
    assert seen.sigma_min > 0
    assert seen.rounds_to_identify == 1
    hidden = certify(world.observe(world.update(), 20)[0], x, world.prior)
    assert (hidden.rank, hidden.sigma_min, hidden.rounds_to_identify) == (20, 0.0, 4)
    assert not hidden.identifiable
    stacked = certify(world.observe(world.update(), 20, rounds=4)[0], x, world.prior)
    assert stacked.identifiable


def test_softmax_regression_is_not_identifiable_from_one_direction():
    """One output without bias: G = (w'x - y) x.  A second exact solution is x' = -(r/w'x) x."""
    update = LocalUpdate(nn.Linear(5, 1, bias=False), (5,), loss=lambda out, y: 0.5 * mse_loss(out[:, 0], y))
    torch.manual_seed(0)
    w, x, y = update.weights(), torch.rand(5, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    r = float(w @ x - y)
    twin = -(r / float(w @ x)) * x
    torch.testing.assert_close(update(w, x, y), update(w, twin, y))
    assert not torch.allclose(x, twin)


def test_box_probability_matches_linear_programs():
    m, k, trials = 12, 4, 200
    rng = np.random.default_rng(0)
    for b in (6, 8, 10):
        wins = 0
        for _ in range(trials):
            A = rng.normal(size=(b, m))
            x = np.concatenate([np.full(k, 0.5), rng.integers(0, 2, m - k)])
            c = rng.normal(size=m)
            ends = [linprog(s * c, A_eq=A, b_eq=A @ x, bounds=(0, 1)).x for s in (1, -1)]
            wins += bool(np.allclose(ends[0], x, atol=1e-6) and np.allclose(ends[1], x, atol=1e-6))
        p = box_probability(m, b, k)
        assert abs(wins - trials * p) / math.sqrt(trials * max(p * (1 - p), 0.01)) < 4.5
    assert box_probability(64, 64, 30) == 1.0
    assert box_probability(64, 30, 30) == 0.0
    assert box_probability(64, 49, 34) == pytest.approx(0.5)


def test_bounds_of_a_linear_problem_are_the_textbooks():
    """Quadratic loss of a bias-only net is linear in x, so the posterior covariance is exact."""

    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(6))

        def forward(self, x):
            return x + self.w

    update = LocalUpdate(Shift(), (6,), loss=lambda out, y: 0.5 * out.square().sum() / len(out))
    w, x, y = update.weights(), torch.rand(6, dtype=torch.float64), torch.zeros(1)
    R = draw("gaussian", d=6, b=4, key=Key(5))
    A, noise = torch.from_numpy(R.to_dense()), ObservedNoise(after=0.3)
    objective = Objective(update, [Observation(w, R, R.sketch(update(w, x, y)), noise)], y)
    prior = GaussianPrior(torch.zeros(6, dtype=torch.float64), 0.7 * torch.eye(6, dtype=torch.float64))
    expected = torch.linalg.inv(A.T @ A / 0.09 + torch.eye(6) / 0.49).trace() / 6
    assert bayesian_at(objective, x, prior) == pytest.approx(float(expected))
    assert van_trees(objective, x[None], prior) == pytest.approx(float(expected))
    assert cramer_rao(objective, x) == math.inf
    quiet = Objective(update, [Observation(w, R, R.sketch(update(w, x, y)))], y)
    assert bayesian_at(quiet, x, prior) == pytest.approx(0.49 * 2 / 6)


def test_attack_meets_the_bayesian_bound(world):
    errors, bounds = [], []
    for seed in range(8):
        update = world.update(seed=seed)
        objective, x = world.observe(update, 300, family="countsketch", seed=seed, noise=ObservedNoise(before=2e-3))
        found = reconstruct(objective, build_solver("prior", world.prior), world.prior, seed=seed)
        errors.append(float((found.x - x).square().mean()))
        bounds.append(bayesian_at(objective, x, world.prior))
        assert cramer_rao(objective, x) >= bounds[-1]
    assert abs(psnr(float(np.mean(errors))) - psnr(float(np.mean(bounds)))) < 1.5


def test_unbiased_attack_meets_cramer_rao(world):
    """With weak noise maximum likelihood is efficient: its MSE over draws is the bound."""
    update, errors = world.update(), []
    noise = ObservedNoise(before=1e-5)
    for seed in range(10):
        objective, x = world.observe(update, 150, noise=noise)
        o, generator = objective.observations[0], torch.Generator().manual_seed(100 + seed)
        s = o.sketch(update(o.w, x, objective.y)) + noise.sample(o.R, 150, generator)
        noisy = Objective(update, [Observation(o.w, o.R, s, noise)], objective.y)
        found = reconstruct(noisy, build_solver("lm", world.prior), world.prior)
        errors.append(float((found.x - x).square().mean()))
    assert np.mean(errors) == pytest.approx(cramer_rao(noisy, x), rel=0.25)


def test_noise_for_a_ceiling_inverts_the_bound(world):
    update = world.update()

    def bound(std):
        objective, x = world.observe(update, 100, family="countsketch", noise=ObservedNoise(before=std))
        return bayesian_at(objective, x, world.prior)

    std = noise_for_ceiling(bound, 20.0, prior=world.prior)
    assert psnr(bound(std)) == pytest.approx(20.0, abs=1e-6)
    assert noise_for_ceiling(bound, 5.0, prior=world.prior) is None
    assert mse_of(psnr(1e-3)) == pytest.approx(1e-3)
