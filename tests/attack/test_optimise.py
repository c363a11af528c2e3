"""Recovery: every solver, every way updates are mixed, and the threshold at b = m."""

from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from desketch.attack.labels import candidate_labels, class_frequencies
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.optimise import SOLVERS, acceptable, build_solver, reconstruct, starts
from desketch.attack.quality import quality
from desketch.attack.solvers import LevenbergMarquardt
from desketch.errors import InputError


def mse_of_attack(world, objective, truth, solver="lm", **options):
    n = objective.update.examples
    prior = world.prior.repeat(n)
    found = reconstruct(objective, build_solver(solver, prior), prior, **options)
    return quality(found.x.reshape(n, 1, 8, 8), truth.reshape(n, 1, 8, 8)).mse, found


@pytest.mark.parametrize("family", ["countsketch", "srht", "gaussian"])
@pytest.mark.parametrize("model", ["mlp-tanh", "lenet"])
def test_recovers_above_the_threshold_with_unknown_label(world, model, family):
    objective, truth = world.observe(world.update(model, seed=1), 71, family=family, seed=1)
    mse, found = mse_of_attack(world, objective, truth, classes=10)
    assert mse < 1e-10
    assert found.accepted
    assert found.y.tolist() == objective.y.tolist()
    assert found.loss == pytest.approx(found.history[-1])


@pytest.mark.parametrize(("solver", "iterations", "limit"), [
    ("prior", 200, 1e-10), ("box", 50, 1e-10), ("lbfgs", 60, 1e-6), ("adam", 600, 1e-3), ("gd", 1500, 1e-3),
])  # fmt: skip
def test_every_solver_descends_to_the_picture(world, solver, iterations, limit):
    objective, truth = world.observe(world.update(), 300)
    mse, found = mse_of_attack(world, objective, truth, solver, iterations=iterations, restarts=1)
    assert mse < limit
    assert found.history[-1] < found.history[0]


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_share_one_face(world, solver):
    objective, _ = world.observe(world.update(), 80)
    x0 = next(starts(world.prior, torch.Generator().manual_seed(0)))
    first = list(islice(build_solver(solver, world.prior).iterate(objective, x0), 3))
    assert first[0].loss == pytest.approx(objective.loss(first[0].x))
    for iterate in first:
        assert iterate.x.shape == x0.shape
        assert iterate.loss == pytest.approx(objective.loss(iterate.x), rel=1e-6)


def test_below_the_threshold_a_low_loss_proves_nothing(world):
    objective, truth = world.observe(world.update(), 56)
    mse, found = mse_of_attack(world, objective, truth)
    assert found.loss < 1e-10
    assert mse > 1e-4


def test_box_recovers_below_the_threshold(world):
    objective, truth = world.observe(world.update(), 58)
    assert mse_of_attack(world, objective, truth, "box")[0] < 1e-10


@pytest.mark.parametrize(
    ("options", "b"),
    [({"K": 5, "eta_local": 0.1}, 75), ({"batch": 2}, 320), ({"clients": 2, "K": 2, "eta_local": 0.1}, 320)],
)
def test_mixed_updates_are_no_protection(world, options, b):
    objective, truth = world.observe(world.update(**options), b)
    assert mse_of_attack(world, objective, truth)[0] < 1e-8


def test_rounds_stack_up(world):
    objective, truth = world.observe(world.update(), 8, rounds=9)
    assert objective.measurements == 72
    assert mse_of_attack(world, objective, truth)[0] < 1e-8


def test_trained_network_falls_to_the_box(world):
    update = world.update()
    net: nn.Module = update.model
    optimiser = torch.optim.SGD([p.requires_grad_() for p in net.parameters()], lr=0.5)
    for _ in range(300):
        optimiser.zero_grad()
        cross_entropy(net(world.x[100:].reshape(-1, 1, 8, 8)), world.y[100:]).backward()
        optimiser.step()
    objective, truth = world.observe(update, update.d // 32)
    assert mse_of_attack(world, objective, truth, "box")[0] < 1e-8


def test_desketching_first_is_a_false_negative(world):
    """The same attack on RᵀR g, as if it were the gradient, finds nothing; in the sketch domain it wins."""
    objective, truth = world.observe(world.update(), 75)
    o = objective.observations[0]
    naive = Objective(objective.update, [Observation(o.w, None, o.desketch(o.s))], objective.y)
    assert mse_of_attack(world, naive, truth, restarts=1, iterations=30)[0] > 1e-2
    assert mse_of_attack(world, objective, truth)[0] < 1e-10


def test_noise_is_accepted_at_its_own_level(world):
    objective, truth = world.observe(world.update(), 300, noise=ObservedNoise(before=1e-3))
    mse, found = mse_of_attack(world, objective, truth, "prior")
    assert found.accepted
    assert 1e-6 < mse < 1e-1
    assert not acceptable(objective, 10 * objective.measurements)


def test_label_counts_of_a_batch(world):
    objective, truth = world.observe(world.update(batch=4), 400)
    frequencies = class_frequencies(objective, world.prior.mean.repeat(4)[None], 10)
    guess = next(candidate_labels(frequencies, 4))
    assert sorted(guess.tolist()) == sorted(objective.y.tolist())
    assert truth.numel() == 256


def test_candidates_are_ordered_and_complete():
    f = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    guesses = [tuple(g.tolist()) for g in candidate_labels(f, 2)]
    assert guesses[0] == (0, 1)
    assert len(set(guesses)) == 6
    big = list(candidate_labels(torch.full((100,), 0.01, dtype=torch.float64), 20))
    assert len(big) == 1
    assert big[0].numel() == 20


def test_progress_is_told(world):
    objective, _ = world.observe(world.update(), 75)
    seen = []
    reconstruct(objective, LevenbergMarquardt(), world.prior, progress=lambda i, loss: seen.append((i, loss)))
    assert [i for i, _ in seen] == list(range(1, len(seen) + 1))


def test_bad_requests_are_refused(world):
    objective, _ = world.observe(world.update(), 75)
    with pytest.raises(InputError, match="lm, prior"):
        build_solver("newton", world.prior)
    with pytest.raises(InputError, match="restarts"):
        reconstruct(objective, LevenbergMarquardt(), world.prior, restarts=0)
