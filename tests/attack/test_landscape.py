"""The constants of L_R: those of the matrices, and the conditions they imply survive a search, sketched or not."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from desketch import Key, draw
from desketch.attack.conditions import falsify, non_critical, semi_smooth, semi_strongly_convex
from desketch.attack.landscape import conditions, estimate, field_of, pseudo_hessian, pseudo_kernel
from desketch.attack.objective import Objective, Observation
from desketch.attack.promises import observe_descent, promises


def target(world, b, family="srht"):
    update = world.update()
    objective, x = world.observe(update, b, family=family)
    return update, objective.observations[0], x, objective.y


@pytest.mark.parametrize("b", [40, 64, 300])
@pytest.mark.parametrize("radius", [0.05, 1.0])
def test_conditions_survive_a_search(world, b, radius):
    update, o, x, y = target(world, b)
    k = estimate(update, o, x, y, radius=radius, points=6)
    field = field_of(update, o, y)
    for condition in conditions(k):
        verdict = falsify(condition, field, x, radius=radius, pairs=30, climbs=15)
        assert not verdict.refuted, (condition.name, verdict.worst)


def test_constants_are_those_of_the_matrices(world):
    update, o, x, y = target(world, 80)
    k = estimate(update, o, x, y, radius=1e-6, points=2)
    Phi, dense = pseudo_hessian(update, o.w, x, y), torch.from_numpy(o.R.to_dense())
    values = torch.linalg.svdvals(dense @ Phi.T)
    assert k.sigma_max == pytest.approx(float(values[0]), rel=1e-4)
    for name in ("sigma_min", "segment_sigma_min", "seen_sigma_min"):
        assert getattr(k, name) == pytest.approx(float(values[63]), rel=1e-3), name
    assert k.turn < 1e-4 * k.sigma_min
    gammas = torch.linalg.svdvals(dense)
    assert (k.gamma_1, k.gamma_2) == pytest.approx((float(gammas[-1]), float(gammas[0])), rel=1e-6)
    assert k.theta_2 == pytest.approx(float(torch.linalg.eigvalsh(Phi @ Phi.T)[-1].sqrt()), rel=1e-4)
    assert k.theta_1 == 0.0  # d > m: the pseudo-kernel is singular
    torch.testing.assert_close(pseudo_kernel(Phi[:, :5]), Phi[:, :5].T @ Phi[:, :5])


def test_norm_of_a_sketch_is_not_one(world):
    update, o, x, y = target(world, 80)
    k = estimate(update, o, x, y, radius=1.0, points=2)
    assert 0.7 * math.sqrt(k.d / k.b) < k.gamma_2 < 1.6 * math.sqrt(k.d / k.b)


def test_countsketch_with_empty_buckets_has_no_lower_singular_value(world):
    update = world.update()
    R = draw("countsketch", d=update.d, b=900, key=Key(0))
    o = Observation(update.weights(), R, torch.zeros(900))
    x, y = world.private()
    assert estimate(update, o, x, y, radius=1.0, points=2).gamma_1 == 0.0


@pytest.mark.parametrize("b", [40, 64, 90, 300])
def test_promises_say_which_conditions_can_hold(world, b):
    update, o, x, y = target(world, b)
    by_name = {p.theorem: p for p in promises(estimate(update, o, x, y, radius=0.1, points=3))}
    assert not by_name["cost convergence, with the lemma's a"].possible
    assert by_name["cost convergence, as printed"].possible
    assert by_name["cost convergence, near a solution"].holds
    identified = b >= 64
    for name in ("unique minimum, as printed", "unique solution, injective mean Jacobians"):
        assert (by_name[name].possible, by_name[name].holds) == (identified, identified), name
    for name in ("convergence of x, as proved", "only critical point and convergence of x, q < 1"):
        assert by_name[name].possible is identified, name
    assert all(p.because for p in by_name.values())


@pytest.mark.parametrize("b", [40, 90, 300])
def test_observed_descent_keeps_the_local_promises(world, b):
    update, o, x, y = target(world, b)
    rates = {p.theorem: p.rate for p in promises(estimate(update, o, x, y, radius=1e-3, points=3))}
    seen = observe_descent(Objective(update, [o], y), x, distance=1e-3, steps=60)
    assert seen.loss_rate <= rates["cost convergence, near a solution"] + 1e-6
    if b >= 64:
        assert seen.distance_rate <= rates["convergence of x, locally"] + 1e-6
    else:
        assert seen.distance_rate > 0.999  # the cost falls, x does not come nearer


def scalar(f):
    def field(x):
        with torch.enable_grad():
            leaf = x.clone().requires_grad_()
            value = f(leaf).sum()
            (g,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), g

    return field


def test_rows_of_the_function_table():
    """On the unit ball tanh is smooth, softplus strongly convex, cosh smooth and critical at 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    assert not falsify(
        semi_smooth(0.0, 0.4, 0.5), scalar(lambda t: 1 + torch.tanh(t)), zero, radius=5.0, pairs=300
    ).refuted
    assert not falsify(semi_strongly_convex(0.0, 0.09, 0.5), scalar(softplus), zero, radius=1.0, pairs=300).refuted
    assert not falsify(semi_smooth(0.0, 0.8, 0.5), scalar(torch.cosh), zero, radius=1.0, pairs=300).refuted
    assert falsify(non_critical(1e-3, 10.0), scalar(torch.cosh), zero, radius=1e-6, pairs=300).refuted
