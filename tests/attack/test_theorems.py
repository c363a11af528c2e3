"""The attack theorems on both sides of their lines: what the widest conditions allow survives, the rest is refuted."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from desketch import Key, draw
from desketch.attack.conditions import (
    falsify,
    non_critical,
    semi_lipschitz_gradient,
    semi_smooth,
    semi_smooth_of_lipschitz,
    semi_strongly_convex,
)
from desketch.attack.landscape import conditions, estimate, field_of
from desketch.attack.objective import Observation
from desketch.attack.promises import cost_factor, promises
from desketch.attack.update import LocalUpdate


class Gradient(nn.Module):
    """F = <w, A x + s tanh(C x)>, so that G(x) = ∇_w F = A x + s tanh(C x): linear at s = 0, bent as s grows."""

    def __init__(self, d, m, s=0.0, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.w = nn.Parameter(torch.zeros(d, dtype=torch.float64))
        self.A, self.C = (torch.randn(d, m, generator=generator, dtype=torch.float64) / m**0.5 for _ in range(2))
        self.s = s

    def forward(self, x):
        return (x @ self.A.T + self.s * torch.tanh(x @ self.C.T)) @ self.w


def leak(m, b, *, s=0.0, d=None, noise=None, seed=0):
    """A message of b numbers about x in R^m: the raw G, or a sketch of it when d is given."""
    update = LocalUpdate(Gradient(d or b, m, s, seed), (m,), loss=lambda out, _: out.sum())
    x, y = torch.linspace(-0.5, 0.7, m, dtype=torch.float64), torch.zeros(1)
    R = None if d is None else draw("gaussian", d=d, b=b, key=Key(seed))
    g = update(update.weights(), x, y)
    message = g if R is None else R.sketch(g)
    return update, Observation(update.weights(), R, message if noise is None else message + noise), x, y


def jacobian(update, o, x, y):
    return o.sketch(update.jacobian(o.w, x, y)[1]).T


def survives(condition, field, x, radius, **search):
    return not falsify(condition, field, x, radius=radius, **search).refuted


def by_name(k):
    return {p.theorem: p for p in promises(k)}


# --- non-critical point


@pytest.mark.parametrize(("m", "b"), [(6, 3), (6, 6), (6, 12), (6, 20), (6, 40)])
def test_non_critical_point_of_a_linear_gradient_holds_for_every_b_and_its_constant_is_the_largest(m, b):
    update, o, x, y = leak(m, b)
    J, field = jacobian(update, o, x, y), field_of(update, o, y)
    _, values, V = torch.linalg.svd(J, full_matrices=False)
    least = float(values[-1])
    k = estimate(update, o, x, y, radius=1.0, points=3)
    assert k.seen_sigma_min == pytest.approx(least)
    assert survives(non_critical(2 * least, 2 * float(values[0])), field, x, 1.0, pairs=200)
    worst = x + V[-1]  # the direction seen least
    assert not survives(non_critical(2.02 * least, 100.0), field, worst, 1e-3)
    assert not survives(non_critical(0.0, 1.98 * float(values[0])), field, x + V[0], 1e-3)


@pytest.mark.parametrize("b", [5, 10, 30])
def test_non_critical_point_of_a_bent_gradient(b):
    update, o, x, y = leak(10, b, s=1.0)
    k = estimate(update, o, x, y, radius=0.02, points=12)
    assert k.seen_sigma_min > 0
    assert survives(conditions(k)[3], field_of(update, o, y), x, 0.02, pairs=200, climbs=200)


def test_noise_takes_the_lower_half_away_for_more_numbers_than_unknowns():
    """e outside the range of J: at the least-squares solution ∇L = 0 and L = |e|²; for b <= m every e is reached."""
    for b, lost in [(4, False), (6, False), (12, True)]:
        update, o, x, y = leak(6, b)
        k = estimate(update, o, x, y, radius=1.0, points=3)
        J = jacobian(update, o, x, y)
        e = torch.ones(b, dtype=torch.float64)
        e = e - J @ torch.linalg.lstsq(J, e[:, None]).solution[:, 0] if lost else e
        noisy = Observation(o.w, o.R, o.s + e)
        field = field_of(update, noisy, y)
        blind, honest = conditions(k)[3], conditions(k, noisy=True)[3]
        assert survives(honest, field, x, 1.0, pairs=100)
        assert survives(blind, field, x, 1e-3) is not lost
        assert (honest.constants["theta_1"] == 0.0) is lost


@pytest.mark.parametrize("b", [2, 4, 5])
def test_the_papers_lemma_in_the_papers_regime(b):
    """At d <= m the printed (2θ₁γ₁, 2θ₂γ₂) holds; the unsketched lemma forgets the factor 2 and fails above."""
    m, d = 8, 5
    update, o, x, y = leak(m, b, s=0.3, d=d)
    k = estimate(update, o, x, y, radius=1.0, points=20)
    assert k.theta_1 > 0
    assert k.seen_sigma_min >= k.theta_1 * k.gamma_1 * (1 - 1e-9)
    printed = non_critical(2 * k.theta_1 * k.gamma_1, 2 * k.theta_2 * k.gamma_2)
    assert survives(printed, field_of(update, o, y), x, 1.0, pairs=200)
    raw, whole, x, y = leak(m, d, s=0.0)
    theta = float(torch.linalg.svdvals(jacobian(raw, whole, x, y))[-1])
    assert not survives(non_critical(0.0, theta), field_of(raw, whole, y), x, 1.0)


# --- semi-smoothness


def test_semi_smoothness_needs_beta_squared():
    """G = c x: β = c, L = c²|x|², whose curvature is β² (as the appendix has it), not β (as the theorem prints)."""
    for c, printed in [(0.1, True), (3.0, False)]:

        def field(x, c=c):
            return float(c**2 * x @ x), 2 * c**2 * x

        x = torch.zeros(3, dtype=torch.float64)
        assert survives(semi_smooth(0.0, c**2, 0.5), field, x, 1.0)
        assert survives(semi_smooth(0.0, c, 0.5), field, x, 1.0) is printed


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 0.8])
def test_semi_lipschitz_gradient_implies_semi_smoothness_with_the_best_constant(p):
    """L = 1 + k t^{2-p} on [0, 2]: α = (2-p) k, β = 0, and α/(2-p) is needed at t = 0 (the lemma prints α)."""
    k = 1.7

    def field(x):
        t = float(x[0].clamp(min=0))
        return 1 + k * t ** (2 - p), torch.tensor([k * (2 - p) * t ** (1 - p)], dtype=torch.float64)

    alpha, middle = (2 - p) * k, torch.ones(1, dtype=torch.float64)
    assert survives(semi_lipschitz_gradient(alpha, 0.0, p), field, middle, 1.0, pairs=300)
    implied = semi_smooth_of_lipschitz(alpha, 0.0, p)
    assert survives(implied, field, middle, 1.0, pairs=400, climbs=200)
    assert survives(semi_smooth(alpha, 0.0, p / 2), field, middle, 1.0, pairs=300)  # as printed
    smaller = semi_smooth(0.9 * implied.constants["a"], 0.0, p / 2)
    assert not survives(smaller, field, middle, 1.0, pairs=2000)


def test_the_half_of_beta_is_needed_too():
    def field(x):
        return 3 + float(x @ x), 2 * x

    zero = torch.zeros(2, dtype=torch.float64)
    assert survives(semi_lipschitz_gradient(0.0, 2.0, 0.5), field, zero, 1.0)
    assert survives(semi_smooth_of_lipschitz(0.0, 2.0, 0.5), field, zero, 1.0)
    assert not survives(semi_smooth(0.0, 0.99, 0.25), field, zero, 1.0)


@pytest.mark.parametrize("b", [6, 24])
def test_the_lemma_on_the_attackers_own_cost(b):
    update, o, x, y = leak(10, b, s=1.0)
    k = estimate(update, o, x, y, radius=0.5, points=12)
    alpha, beta = 32**0.5 * k.turn, 8**0.5 * k.sigma_max**2
    field = field_of(update, o, y)
    assert survives(semi_lipschitz_gradient(alpha, beta, 1.0), field, x, 0.5, pairs=200)
    assert survives(semi_smooth_of_lipschitz(alpha, beta, 1.0), field, x, 0.5, pairs=200)


# --- convergence of the cost


def descend(field, x, eta, steps):
    """Losses and points of gradient descent."""
    walk = []
    for _ in range(steps + 1):
        L, grad = field(x)
        walk.append((L, x))
        x = x - eta * grad
    return walk


@pytest.mark.parametrize(("m", "b"), [(6, 3), (6, 6), (6, 20)])
@pytest.mark.parametrize("s", [0.0, 0.002])
def test_cost_converges_as_printed_for_linear_and_nearly_linear_gradients(m, b, s):
    update, o, x, y = leak(m, b, s=s)
    k = estimate(update, o, x, y, radius=1.0, points=8)
    printed = by_name(k)["cost convergence, as printed"]
    assert printed.holds
    a, c = 2 * k.turn, k.sigma_max**2
    factor = cost_factor(printed.eta, a=a, b=c, p=0.5, theta_1=2 * k.seen_sigma_min, theta_2=2 * k.sigma_max)
    assert factor == pytest.approx(printed.rate)
    start = x + 0.5 * torch.nn.functional.normalize(torch.ones(m, dtype=torch.float64), dim=0)
    losses = [L for L, _ in descend(field_of(update, o, y), start, printed.eta, 50)]
    assert all(after <= printed.rate * before for before, after in pairwise(losses))


def test_cost_condition_fails_where_the_jacobian_turns():
    update, o, x, y = leak(6, 20, s=5.0)
    assert not by_name(estimate(update, o, x, y, radius=1.0, points=8))["cost convergence, as printed"].holds


def ripple(p, kappa=20.0):
    """L = r²(1 + e sin kθ) in the plane with the constants proved for it, and the printed η and γ."""

    def constants(e):
        theta_1, theta_2 = (4 * (1 - e) ** 2 / (1 + e)) ** 0.5, ((4 * (1 + e) ** 2 + kappa**2) / (1 - e)) ** 0.5
        a = theta_1**2 / 2 / theta_2 ** (2 - 2 * p)
        slope, left = 2 * (kappa + 2 * e), a * (1 - e) ** p
        peak = (slope / (2 * p * left)) ** (1 / (2 * p - 1))
        return theta_1, theta_2, a, 1 + kappa + 2 * e + slope * peak * (1 - 1 / (2 * p))

    theta_1, theta_2, a, b = constants(1e-3)
    margin = theta_1**2 - a * theta_2 ** (2 - 2 * p)
    eta = margin / (2 * b * theta_2**2)
    e = 5 * eta
    assert e < 1e-3
    k = round(kappa / e)

    def field(x):
        r2, angle = float(x @ x), math.atan2(float(x[1]), float(x[0]))
        tangent = torch.stack([-x[1], x[0]])
        wave = 1 + e * math.sin(k * angle)
        return r2 * wave, 2 * wave * x + e * k * math.cos(k * angle) * tangent

    return field, semi_smooth(a, b, p), non_critical(theta_1, theta_2), eta, eta * margin / 2, k


@pytest.mark.parametrize("p", [0.8, 1.0])
def test_cost_theorem_is_false_for_p_above_a_half(p):
    field, smooth, critical, eta, gamma, k = ripple(p)
    centre = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for radius in (0.5, 10 / k):
        assert survives(smooth, field, centre, radius, pairs=300, climbs=100)
        assert survives(critical, field, centre, radius, pairs=300, climbs=100)
    growth = 0.0
    for i in range(400):
        angle = 2 * math.pi * i / (400 * k)
        L, grad = field(x := torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64))
        growth = max(growth, field(x - eta * grad)[0] / L - 1)
    assert growth > gamma  # the cost rises by more than it was promised to fall
    a, b = smooth.constants["a"], smooth.constants["b"]
    theta = critical.constants
    assert 1 + growth <= cost_factor(eta, a=a, b=b, p=p, theta_1=theta["theta_1"], theta_2=theta["theta_2"])


def test_cost_theorem_needs_steps_below_one_for_p_below_a_half():
    """L = |x|²/100, p = 0: a + b = 1/100 serves, b may be tiny, and the printed η lets the descent explode."""
    a, b, theta = 0.0099, 1e-4, 0.2

    def field(x):
        return float(x @ x) / 100, x / 50

    x = torch.ones(2, dtype=torch.float64)
    assert survives(semi_smooth(a, b, 0.0), field, x, 3.0)
    assert survives(non_critical(theta, theta), field, x, 3.0)
    eta = (theta**2 - a * theta**2) / (2 * b * theta**2)
    L, grad = field(x)
    assert field(x - eta * grad)[0] > 100 * L
    gamma = (theta**2 - a * theta**2) / 2  # at η = 1 the promise is kept
    assert field(x - grad)[0] <= (1 - gamma) * L


# --- uniqueness


def test_semi_strong_convexity_is_where_fewer_numbers_than_unknowns_fail():
    for b, possible in [(4, False), (6, True), (20, True)]:
        update, o, x, y = leak(6, b)
        k = estimate(update, o, x, y, radius=1.0, points=4)
        _, values, V = torch.linalg.svd(jacobian(update, o, x, y))
        field, d = field_of(update, o, y), k.segment_sigma_min**2 or 1e-3
        assert survives(semi_strongly_convex(2 * k.turn, d, 0.5), field, x, 1.0, pairs=300, climbs=300) is possible
        assert by_name(k)["unique minimum, as printed"].holds is possible
        other = field(x + V[-1])[0]  # the direction seen least
        assert (other < 1e-20) is not possible
        assert values.numel() == min(6, b)


def circle(x):
    """G(x) = (cos x, sin x) with x* = 0: L = 2 - 2 cos x, critical at π."""
    t = float(x[0])
    return 2 - 2 * math.cos(t), torch.tensor([2 * math.sin(t)], dtype=torch.float64)


def test_only_critical_point_up_to_where_the_jacobian_has_turned_too_far():
    """q(x) = |J - J̄|/|J̄| < 1 up to |x| = 1.89; π lies beyond, and every θ₁ > 0 is refuted there."""
    zero = torch.zeros(1, dtype=torch.float64)

    def q(t):
        mean = torch.tensor([(math.cos(t) - 1) / t, math.sin(t) / t])
        return float((torch.tensor([-math.sin(t), math.cos(t)]) - mean).norm() / mean.norm())

    assert q(1.89) < 1 < q(1.9)
    seen = min(abs(math.cos(i * 0.01 / 2)) for i in range(120))  # |J·J̄|/|J̄| = cos(x/2)
    assert survives(non_critical(2 * seen, 2.0), circle, zero, 1.19, pairs=300)
    assert not survives(non_critical(0.05, 2.0), circle, zero, 3.3, pairs=2000)


def test_uniqueness_is_false_at_p_zero():
    """L = x₁² in the plane: non-critical (2, 2), (1, 1, 0)-semi-strongly convex, and a line of minima."""

    def field(x):
        return float(x[0] ** 2), torch.stack([2 * x[0], torch.zeros_like(x[0])])

    zero = torch.zeros(2, dtype=torch.float64)
    assert survives(non_critical(2.0, 2.0), field, zero, 1.0)
    assert survives(semi_strongly_convex(1.0, 1.0, 0.0), field, zero, 1.0)
    assert field(torch.tensor([0.0, 0.7], dtype=torch.float64))[0] == 0.0


# --- convergence of x


@pytest.mark.parametrize(("m", "b"), [(6, 6), (6, 9), (6, 40)])
def test_x_converges_as_proved_for_linear_gradients_and_not_as_printed(m, b):
    update, o, x, y = leak(m, b)
    k = estimate(update, o, x, y, radius=1.0, points=4)
    proved = by_name(k)["convergence of x, as proved"]
    assert proved.holds
    xi, zeta = 2 * k.sigma_min**2, 4 * k.sigma_max**4
    assert proved.eta == pytest.approx(xi / (2 * zeta), rel=1e-6)
    assert proved.rate == pytest.approx((1 - xi**2 / (4 * zeta)) ** 0.5, rel=1e-6)
    walk = descend(field_of(update, o, y), x + 0.3, proved.eta, 20)
    gaps = [float((point - x).norm()) for _, point in walk]
    ratios = [after / before for before, after in pairwise(gaps)]
    assert max(ratios) <= proved.rate + 1e-12
    assert min(ratios) > 1 - proved.rate**2  # the printed γ = 1 - ξη/2 would leave only ξη/2


def test_x_converges_as_proved_for_a_nearly_linear_gradient():
    update, o, x, y = leak(6, 20, s=0.001)
    proved = by_name(estimate(update, o, x, y, radius=0.5, points=12))["convergence of x, as proved"]
    assert proved.holds
    walk = descend(field_of(update, o, y), x + 0.2, proved.eta, 20)
    gaps = [float((point - x).norm()) for _, point in walk]
    assert all(after <= proved.rate * before for before, after in pairwise(gaps))
    bent = leak(6, 20, s=2.0)
    assert not by_name(estimate(*bent, radius=0.5, points=12))["convergence of x, as proved"].holds


@pytest.mark.parametrize("b", [10, 20, 40])
@pytest.mark.parametrize("radius", [0.02, 0.1])
def test_x_converges_where_the_jacobian_turns_less_than_it_sees(b, radius):
    update, o, x, y = leak(10, b, s=0.5)
    k = estimate(update, o, x, y, radius=radius, points=12)
    widest = by_name(k)["only critical point and convergence of x, q < 1"]
    assert widest.holds
    for seed in range(5):
        direction = torch.randn(10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        walk = descend(field_of(update, o, y), x + radius * direction / direction.norm(), widest.eta, 30)
        gaps = [float((point - x).norm()) for _, point in walk]
        assert all(after <= widest.rate * before for before, after in pairwise(gaps))


def test_no_promise_where_the_jacobian_turns_more_than_it_sees():
    k = estimate(*leak(10, 10, s=0.5), radius=3.0, points=12)
    assert k.turn > k.segment_sigma_min
    assert not by_name(k)["only critical point and convergence of x, q < 1"].holds


def test_x_does_not_converge_where_q_exceeds_one():
    """On the circle, gradient descent from π stays there."""
    start = torch.tensor([math.pi], dtype=torch.float64)
    assert float(descend(circle, start, 0.25, 50)[-1][1]) == pytest.approx(math.pi, abs=1e-6)


def test_fewer_numbers_than_unknowns_never_promise_x():
    update, o, x, y = leak(6, 4)
    found = by_name(estimate(update, o, x, y, radius=0.1, points=4))
    assert found["cost convergence, as printed"].holds
    assert not any(p.possible for name, p in found.items() if "of x" in name or "unique" in name)
