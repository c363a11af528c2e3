"""What the theorems of the attack promise for given constants, which of their conditions can hold, and what is seen.

Corrections to the paper, computed rather than argued around:

* **Convergence of the cost** (Theorem "cost convergence") asks θ₁² > a θ₂^{2-2p}.  With p = 1/2 its own constants are
  a >= 4 θ₂γ₂ for L_R, non-critical bounds 2θ₁γ₁ and 2θ₂γ₂, so it asks 4θ₁²γ₁² > 8θ₂²γ₂² although θ₁ <= θ₂ and
  γ₁ <= γ₂: no F and no R satisfy it, and the printed step size is negative.  The Polyak-Łojasiewicz form is true near
  a solution: η = 1/H, L(x_{t+1}) <= (1 - μ/H) L(x_t), H = 2σ_max(R Φ)², μ = 2σ_min(R Φ)².
* **Uniqueness** asks for the non-critical point condition with θ₁ > 0, possible only for b <= m (d <= m unsketched),
  and for semi-strong convexity with d > 0, possible only for b >= m: both together only at b = m exactly.  What is
  true for b >= m: where the mean Jacobian over every segment to x* is injective, no other x has the same sketch.
* **Convergence of x** is stated with γ = 1 - ξη/2 where its proof has γ = ξη/2, for the squared distance.  Its
  condition compares d with c^{1/(2-2p)}, quantities of different units.  It is evaluated as proved; the local
  statement |x_{t+1} - x*| <= (1 - σ_min²/σ_max²)|x_t - x*| needs no such condition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from desketch.attack.landscape import Constants
from desketch.attack.objective import Objective
from desketch.attack.solvers import GradientDescent

__all__ = ["Observed", "Promise", "observe_descent", "promises"]


@dataclass(frozen=True)
class Promise:
    """One theorem at one point: whether its conditions hold, why, and the rate per step it then gives."""

    theorem: str
    holds: bool
    possible: bool
    because: str
    rate: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Observed:
    """Factors per step at the end of a gradient descent with η = 1/H: of L_R, and of the distance to x*."""

    loss_rate: float
    distance_rate: float
    steps: int


def promises(k: Constants) -> tuple[Promise, ...]:
    """Evaluate the printed theorems and their corrected forms for these constants."""
    return (_cost_printed(k), _cost_corrected(k), _unique_printed(k), _unique_corrected(k), *_solution(k))


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


def _cost_printed(k: Constants) -> Promise:
    a, t1, t2 = 2 * k.tau * k.beta + 2 * k.theta_2 * k.gamma_2, 2 * k.theta_1 * k.gamma_1, 2 * k.theta_2 * k.gamma_2
    because = f"needs θ₁² = {t1**2:.3g} > a θ₂ = {a * t2:.3g}; a >= 2 θ₂ and θ₁ <= θ₂ rule that out for every F and R"
    return Promise("cost convergence, as printed", t1**2 > a * t2, False, because)


def _cost_corrected(k: Constants) -> Promise:
    name = "cost convergence, Polyak-Łojasiewicz near a solution"
    if k.b < k.m:
        return Promise(name, False, False, f"b = {k.b} < m = {k.m}: s_min(R Φ) = 0, directions of x are never seen")
    rate = 1 - (k.sigma_min / k.sigma_max) ** 2
    because = f"η = 1/H with H = 2·{k.sigma_max:.3g}², μ = 2·{k.sigma_min:.3g}²"
    return Promise(name, k.sigma_min > 0, True, because, rate)


def _unique_printed(k: Constants) -> Promise:
    name = "unique minimum, as printed"
    if k.b > k.m:
        return Promise(name, False, False, f"θ₁ > 0 needs b <= m, here b = {k.b} > m = {k.m}")
    if k.b < k.m:
        return Promise(name, False, False, f"semi-strong convexity with d > 0 needs b >= m, here b = {k.b} < m = {k.m}")
    holds = k.row_sigma_min > 0 and k.segment_sigma_min > 0
    return Promise(name, holds, True, "b = m is the only case in which both conditions can hold")


def _unique_corrected(k: Constants) -> Promise:
    name = "unique minimum, injective mean Jacobian on the sampled ball"
    if k.b < k.m:
        return Promise(name, False, False, f"b = {k.b} < m = {k.m}: a manifold of inputs has the same sketch")
    because = f"least s_min of the sampled mean Jacobians is {k.segment_sigma_min:.3g} (sampled, so not a proof)"
    return Promise(name, k.segment_sigma_min > 0, True, because)


def _solution(k: Constants) -> tuple[Promise, Promise]:
    rate = 1 - (k.sigma_min / k.sigma_max) ** 2 if k.b >= k.m else None
    local = Promise(
        "convergence of x, locally",
        rate is not None and k.sigma_min > 0,
        k.b >= k.m,
        "linearisation at x*: |x' - x*| <= (1 - s_min²/s_max²)|x - x*| for η = 1/H",
        rate,
    )
    return _solution_printed(k), local


def _solution_printed(k: Constants) -> Promise:
    """Conditions θ₁ > alpha^{1/p} and d > c^{1/2p} ζ/θ₁² + c^{1/(2-2p)}, p = 1/2, α² = 16 σ·bend where L <= 1."""
    name = "convergence of x, as proved"
    theta_1 = 2 * k.row_sigma_min
    if k.b != k.m or theta_1 == 0:
        return Promise(name, False, k.b == k.m, "needs θ₁ > 0, hence b <= m, and d > 0, hence b >= m: only b = m")
    alpha_squared, c = 16 * k.sigma_max * k.bend, 4 * k.sigma_max
    if theta_1 <= alpha_squared:
        return Promise(name, False, True, f"needs θ₁ > alpha^(1/p): {theta_1:.3g} > {alpha_squared:.3g} fails")
    zeta = theta_1 / (theta_1 - alpha_squared) * (8 * k.sigma_max**4 + alpha_squared / theta_1)
    xi = 2 * (k.segment_sigma_min**2 - c * zeta / theta_1**2 - c)
    because = f"ξ = {xi:.3g} must be positive, ζ = {zeta:.3g}, η <= ξ/(2ζ)"
    return Promise(name, xi > 0, True, because, (1 - xi**2 / (4 * zeta)) ** 0.5 if 0 < xi < 2 * zeta**0.5 else None)
