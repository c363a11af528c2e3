"""From Lipschitz to smooth and from semi-Lipschitz to semi-smooth: the constants of the two lemmas, by search."""

import pytest
import torch

from desketch.attack.conditions import falsify, semi_lipschitz_gradient, semi_smooth
from desketch.attack.landscape import conditions, estimate, field_of

ZERO = torch.zeros(2, dtype=torch.float64)


def quadratic(x):
    """L = 3|x|², whose gradient is 6-Lipschitz."""
    return float(3 * x @ x), 6 * x


def quartic(x):
    """L = |x|⁴: not smooth, but |∇L(x) - ∇L(y)|² <= 576|x-y|⁶ + 576|x-y|² L(x), so semi-Lipschitz on a ball."""
    n = float(x @ x)
    return n**2, 4 * n * x


def test_a_lipschitz_gradient_is_smooth_with_half_the_constant():
    """lem:folklore:app: b = β/2, and no smaller b will do."""
    assert not falsify(semi_smooth(0.0, 6 / 2, 0.0), quadratic, ZERO, radius=2.0, pairs=200).refuted
    assert falsify(semi_smooth(0.0, 0.99 * 6 / 2, 0.0), quadratic, ZERO, radius=2.0, pairs=200).refuted


@pytest.mark.parametrize(("alpha", "beta", "p"), [(24.0, 24.0, 1.0), (40.0, 24.0, 0.5)])
def test_semi_lipschitz_implies_semi_smooth_with_the_printed_constants(alpha, beta, p):
    """lem:semi_lip_to_semi_smooth: (α, β, p) gives (α, β/2, p/2); its proof even gives α/(2-p)."""
    radius = 0.5
    assert not falsify(semi_lipschitz_gradient(alpha, beta, p), quartic, ZERO, radius=radius, pairs=300).refuted
    assert not falsify(semi_smooth(alpha, beta / 2, p / 2), quartic, ZERO, radius=radius, pairs=300).refuted
    assert not falsify(semi_smooth(alpha / (2 - p), beta / 2, p / 2), quartic, ZERO, radius=radius, pairs=300).refuted
    assert falsify(semi_smooth(alpha / 100, beta / 200, p / 2), quartic, ZERO, radius=radius, pairs=300).refuted


def test_the_implied_smoothness_of_a_sketched_network(world):
    update = world.update()
    objective, x = world.observe(update, 80)
    o, y = objective.observations[0], objective.y
    lipschitz = conditions(estimate(update, o, x, y, radius=1.0, points=6))[1]
    alpha, beta, p = (lipschitz.constants[name] for name in ("alpha", "beta", "p"))
    field = field_of(update, o, y)
    assert not falsify(lipschitz, field, x, radius=1.0, pairs=30, climbs=10).refuted
    assert not falsify(semi_smooth(alpha, beta / 2, p / 2), field, x, radius=1.0, pairs=30, climbs=10).refuted
