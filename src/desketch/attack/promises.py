"""What the theorems of the attack promise for given constants, with the widest conditions, and what is seen.

With the constants of `landscape` (σ, s̄, ŝ, ε) on a ball around the solution x*, without noise:

* **Convergence of the cost** (``thm:cost_1``) asks θ₁² > a θ₂^{2-2p}.  For L_R at p = 1/2 that is ŝ² > ε σ: true for a
  linear G (ε = 0) and near any solution with ŝ > 0, whatever b.  The constants that the paper's own semi-smoothness
  lemma supplies have a >= θ₂ and can never satisfy it.  The proof writes η where η^{2-2p} stands, so it covers p = 1/2,
  and p < 1/2 with η <= 1; beyond that the statement is false.
* **Uniqueness** (``app:thm:unique_local_minima``) asks for ŝ > 0 and s̄ > 0, possible for every b >= m.
* **Convergence of x** (``thm:solution_1``) is proved for the squared distance with γ = ξη/2 (printed 1 - ξη/2), and
  holds for a linear G with b >= m.
* **One theorem for both**, free of units: if q = ε/s̄ < 1, then x* is the only critical point in the ball, and gradient
  descent with η = (1-q)/(2σ²) has |x' - x*|² <= (1 - (1-q)² s̄²/σ²)|x - x*|² from every start in it.

Proofs and counter-examples: ``docs/leakage_theory.md``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from desketch.attack.landscape import LandscapeConstants
from desketch.attack.objective import Objective
from desketch.attack.solvers import GradientDescent

__all__ = ["Observed", "Promise", "cost_factor", "observe_descent", "promises"]

_UNITS = tuple(10.0 ** (i / 4) for i in range(-24, 25))  # scales of L tried where a condition depends on its unit


@dataclass(frozen=True)
class Promise:
    """One theorem at one point: whether its conditions hold, why, the step size and the rate per step it then gives."""

    theorem: str
    holds: bool
    possible: bool
    because: str
    rate: float | None = None
    eta: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Observed:
    """Factors per step at the end of a gradient descent with η = 1/H: of L_R, and of the distance to x*."""

    loss_rate: float
    distance_rate: float
    steps: int


def promises(k: LandscapeConstants) -> tuple[Promise, ...]:
    """Evaluate the theorems, as printed and in their widest form, for these constants."""
    return (
        _cost_with_the_lemmas_constants(k),
        _cost(k),
        _cost_locally(k),
        _unique(k),
        _solution_unique(k),
        _solution_as_proved(k),
        _solution(k),
        _solution_locally(k),
    )


def cost_factor(eta: float, *, a: float, b: float, p: float, theta_1: float, theta_2: float) -> float:
    """L(x')/L(x) is at most this after a step of size η: ``thm:cost_1`` for every p, with η^{2-2p} where it stands."""
    return 1 - eta * theta_1**2 + b * eta**2 * theta_2**2 + a * (eta * theta_2) ** (2 - 2 * p)


def observe_descent(objective: Objective, solution: Tensor, *, distance: float, steps: int, seed: int = 0) -> Observed:
    """Start gradient descent at ``distance`` from the solution and measure its rates over the second half."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(solution.shape, generator=generator, dtype=solution.dtype)
    x0 = solution + distance * direction / direction.norm()
    walk = list(islice(GradientDescent(refresh=1).iterate(objective, x0), steps + 1))
    half = len(walk) // 2
    count = max(len(walk) - 1 - half, 1)

    def rate(last: float, first: float) -> float:
        return (last / first) ** (1 / count) if first > 0 else 0.0

    gaps = [float((walk[i].x - solution).norm()) for i in (half, -1)]
    return Observed(rate(walk[-1].loss, walk[half].loss), rate(gaps[1], gaps[0]), len(walk) - 1)


def _cost_with_the_lemmas_constants(k: LandscapeConstants) -> Promise:
    a, t1, t2 = 2 * k.tau * k.beta + 2 * k.theta_2 * k.gamma_2, 2 * k.theta_1 * k.gamma_1, 2 * k.theta_2 * k.gamma_2
    because = f"needs θ₁² = {t1**2:.3g} > a θ₂ = {a * t2:.3g}, but the lemma's a is never below its θ₂"
    return Promise("cost convergence, with the lemma's a", False, False, because)


def _cost(k: LandscapeConstants) -> Promise:
    """At p = 1/2, a = 2ε, b = σ², θ₁ = 2ŝ, θ₂ = 2σ: η = (ŝ² - εσ)/(2σ⁴), γ = 2η(ŝ² - εσ)."""
    name, margin = "cost convergence, as printed", k.seen_sigma_min**2 - k.turn * k.sigma_max
    because = f"needs ŝ² = {k.seen_sigma_min**2:.3g} > ε·s_max = {k.turn * k.sigma_max:.3g} on the ball"
    if margin <= 0:
        return Promise(name, False, True, because)
    eta = margin / (2 * k.sigma_max**4)
    return Promise(name, True, True, because, 1 - 2 * eta * margin, eta)


def _cost_locally(k: LandscapeConstants) -> Promise:
    rate, eta = 1 - (k.seen_sigma_min / k.sigma_max) ** 2, 1 / (2 * k.sigma_max**2)
    because = f"Polyak-Łojasiewicz at x*, η = 1/H: H = 2·{k.sigma_max:.3g}², μ = 2·{k.seen_sigma_min:.3g}²"
    return Promise("cost convergence, near a solution", k.seen_sigma_min > 0, True, because, rate, eta)


def _unique(k: LandscapeConstants) -> Promise:
    name = "unique minimum, as printed"
    if k.b < k.m:
        because = f"semi-strong convexity with d > 0 needs b >= m: b = {k.b} < m = {k.m} leaves directions unseen"
        return Promise(name, False, False, because)
    because = f"θ₁ = 2·{k.seen_sigma_min:.3g} and d = {k.segment_sigma_min:.3g}² must be positive (sampled: no proof)"
    return Promise(name, k.seen_sigma_min > 0 and k.segment_sigma_min > 0, True, because)


def _solution_unique(k: LandscapeConstants) -> Promise:
    name = "unique solution, injective mean Jacobians"
    if k.b < k.m:
        return Promise(name, False, False, f"b = {k.b} < m = {k.m}: a manifold of inputs has the same sketch")
    because = f"least s_min of the sampled mean Jacobians is {k.segment_sigma_min:.3g} (sampled: no proof)"
    return Promise(name, k.segment_sigma_min > 0, True, because)


def _solution_as_proved(k: LandscapeConstants) -> Promise:
    """θ₁ > α^{1/p} and ξ > 0 at p = 1/2, in the unit of L that suits them best (they are not free of units)."""
    name = "convergence of x, as proved"
    if k.b < k.m:
        return Promise(name, False, False, f"d > 0 needs b >= m, here b = {k.b} < m = {k.m}")
    tried = (_xi_zeta(k, unit / k.sigma_max) for unit in _UNITS)
    fit = [(xi**2 / zeta, xi, zeta, u) for xi, zeta, u in tried if xi > 0]
    if not fit:
        return Promise(
            name, False, True, "no unit of L makes both θ₁ > alpha^(1/p) and ξ > 0: J turns too much on the ball"
        )
    _, xi, zeta, u = max(fit)
    eta = xi / (2 * zeta)
    because = f"ξ = {xi:.3g}, ζ = {zeta:.3g} for {u**2:.3g} L; |x' - x*|² <= (1 - ξη/2)|x - x*|²"
    return Promise(name, True, True, because, (1 - xi * eta / 2) ** 0.5, eta * u**2)


def _xi_zeta(k: LandscapeConstants, u: float) -> tuple[float, float, float]:
    """(ξ, ζ, u) of ``thm:solution_1`` for u² L with p = 1/2; ξ is negative where θ₁ <= α²."""
    sigma, turn, bend = u * k.sigma_max, u * k.turn, u * k.bend
    theta_1, c, d = 2 * u * k.seen_sigma_min, 2 * turn, (u * k.segment_sigma_min) ** 2
    alpha_squared = 16 * sigma**2 * turn
    beta_squared = 4 * sigma**4 + 4 * (bend * sigma * k.radius) ** 2
    if theta_1 <= alpha_squared or theta_1 == 0:
        return -1.0, 1.0, u
    zeta = theta_1 / (theta_1 - alpha_squared) * (beta_squared + alpha_squared / theta_1)
    return 2 * (d - c * zeta / theta_1**2 - c), zeta, u


def _solution(k: LandscapeConstants) -> Promise:
    name = "only critical point and convergence of x, q < 1"
    if k.b < k.m:
        return Promise(name, False, False, f"s̄ > 0 needs b >= m, here b = {k.b} < m = {k.m}")
    because = f"needs ε = {k.turn:.3g} < s̄ = {k.segment_sigma_min:.3g} on the ball (sampled: no proof)"
    if k.turn >= k.segment_sigma_min:
        return Promise(name, False, True, because)
    q = k.turn / k.segment_sigma_min
    rate = (1 - ((1 - q) * k.segment_sigma_min / k.sigma_max) ** 2) ** 0.5
    return Promise(name, True, True, because, rate, (1 - q) / (2 * k.sigma_max**2))


def _solution_locally(k: LandscapeConstants) -> Promise:
    seen = k.b >= k.m and k.sigma_min > 0
    because = "linearisation at x*: |x' - x*| <= (1 - s_min²/s_max²)|x - x*| for η = 1/H"
    rate = 1 - (k.sigma_min / k.sigma_max) ** 2 if seen else None
    return Promise("convergence of x, locally", seen, k.b >= k.m, because, rate, 1 / (2 * k.sigma_max**2))
