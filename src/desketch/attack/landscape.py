"""The landscape of L_R: pseudo-Hessian, its constants over a ball, and the conditions they imply.

Φ(x) = ∇_x ∇_w F (m x d) is the pseudo-Hessian, ΦᵀΦ (d x d) the pseudo-kernel with θ₁² <= eigenvalues <= θ₂²;
G = ∇_w F is β-Lipschitz in x; R has singular values in [γ₁, γ₂] and is τ-Lipschitz.  What decides is the product
J(x) = R Φ(x)ᵀ (b x m) and its mean J̄ over a segment.  Without noise the residual at x is J̄ (x - x*), J̄ taken from x*
to x, so it lies in the range of J̄.  With

    σ = sup |J|,   s̄ = inf σ_min(J̄),   ε = sup |J̄ - J| at the ends of segments,   ŝ = inf σ_min(Jᵀ Q),

Q an orthonormal basis of the range of J̄, L_R is on the ball

* semi-smooth (2ε, σ², 1/2);
* non-critical (2ŝ, 2σ), for b < m, b = m and b > m alike; ŝ = σ_b(J) when J̄ has b independent rows;
* semi-strongly convex (2ε, s̄², 1/2), where s̄ > 0 needs b >= m;
* of semi-Lipschitz gradient (√32 ε, √8 σ², 1).

A linear G has ε = 0.  With noise the residual may point anywhere in R^b, and ŝ is replaced by σ_b(J), which is 0 for
b > m.  The paper restricts itself to d <= m, where ŝ >= γ₁θ₁ > 0; its constants A = 2τβ + 2θ₂γ₂ and B = τ²β² (the main
theorem prints τ²β) bound ours.  Proofs: ``docs/leakage_theory.md``.

Suprema over a ball cannot be computed: they are taken over sampled points and segments, and `falsify` searches the
ball for a violation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from desketch.attack.conditions import (
    Condition,
    Field,
    non_critical,
    random_in_ball,
    semi_lipschitz_gradient,
    semi_smooth,
    semi_strongly_convex,
)
from desketch.attack.objective import Observation
from desketch.attack.update import LocalUpdate

__all__ = ["LandscapeConstants", "conditions", "estimate", "field_of", "pseudo_hessian", "pseudo_kernel"]

# Gauss-Legendre on [0, 1]: the mean over a segment, exact for Jacobians of degree five along it
_NODES = (0.5 - 0.6**0.5 / 2, 0.5, 0.5 + 0.6**0.5 / 2)
_WEIGHTS = (5 / 18, 8 / 18, 5 / 18)


def pseudo_hessian(update: LocalUpdate, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Φ(x, w) = ∇_x ∇_w F, as (m, d)."""
    return update.jacobian(w, x, y)[1]


def pseudo_kernel(Phi: Tensor) -> Tensor:
    """K(x) = ΦᵀΦ, d x d."""
    return Phi.T @ Phi


@dataclass(frozen=True)
class LandscapeConstants:
    """Suprema and infima over the sampled ball; ``theta`` refers to Φ, ``gamma`` to R, the rest to J = R Φᵀ.

    ``sigma_min`` is the least m-th singular value of J and ``row_sigma_min`` the least b-th (0 where there are fewer);
    ``segment_sigma_min`` is s̄, ``seen_sigma_min`` ŝ, ``turn`` ε and ``bend`` the Lipschitz constant of J.  ``theta_1``
    is 0 unless d <= m, as the paper has it.
    """

    m: int
    d: int
    b: int
    radius: float
    theta_1: float
    theta_2: float
    beta: float
    gamma_1: float
    gamma_2: float
    tau: float
    sigma_min: float
    sigma_max: float
    segment_sigma_min: float
    seen_sigma_min: float
    row_sigma_min: float
    turn: float
    bend: float


def estimate(
    update: LocalUpdate, o: Observation, x: Tensor, y: Tensor, *, radius: float, points: int = 16, seed: int = 0
) -> LandscapeConstants:
    """Constants of F and R over a ball around the solution x, from ``points`` samples of it (x itself included)."""
    generator = torch.Generator().manual_seed(seed)
    samples = [x, *(random_in_ball(x, radius, generator) for _ in range(points - 1))]
    hessians = [pseudo_hessian(update, o.w, sample, y) for sample in samples]
    m, d, b = x.numel(), o.w.numel(), o.s.numel()
    thetas = [torch.linalg.svdvals(Phi) for Phi in hessians]
    jacobians = [o.sketch(Phi).T for Phi in hessians]
    sigmas = [torch.linalg.svdvals(J) for J in jacobians]
    gammas = _singular_values(o)
    theta_2 = max(float(v[0]) for v in thetas)
    segments = _Segments(lambda at: o.sketch(pseudo_hessian(update, o.w, at, y)).T, samples, jacobians)
    return LandscapeConstants(
        m=m,
        d=d,
        b=b,
        radius=radius,
        theta_1=min(float(v[-1]) for v in thetas) if d <= m else 0.0,
        theta_2=theta_2,
        beta=theta_2,  # the supremum of |Φ| over a convex set is the Lipschitz constant of G there
        gamma_1=float(gammas[0]),
        gamma_2=float(gammas[-1]),
        tau=float(gammas[-1]),
        sigma_min=min(float(v[m - 1]) for v in sigmas) if b >= m else 0.0,
        sigma_max=max(float(v[0]) for v in sigmas),
        segment_sigma_min=segments.sigma_min() if b >= m else 0.0,
        seen_sigma_min=segments.seen_sigma_min(),
        row_sigma_min=min(float(v[b - 1]) for v in sigmas) if b <= m else 0.0,
        turn=segments.turn(),
        bend=segments.bend(),
    )


class _Segments:
    """Mean Jacobians from the centre to every sample, and from every sample to the next."""

    def __init__(self, jacobian: Callable[[Tensor], Tensor], samples: list[Tensor], jacobians: list[Tensor]) -> None:
        self._samples, self._jacobians = samples, jacobians
        spokes = [(0, i) for i in range(1, len(samples))]
        self._ends = spokes + list(pairwise(range(1, len(samples))))
        self._means = [self._mean(jacobian, samples[i], samples[j]) for i, j in self._ends]
        self._spokes = len(spokes)

    @staticmethod
    def _mean(jacobian: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
        parts = (weight * jacobian(x + t * (y - x)) for t, weight in zip(_NODES, _WEIGHTS, strict=True))
        return torch.stack(list(parts)).sum(0)

    def sigma_min(self) -> float:
        means = [*self._means, self._jacobians[0]]
        return min(float(torch.linalg.svdvals(J)[-1]) for J in means)

    def seen_sigma_min(self) -> float:
        """The least singular value of JᵀQ, Q a basis of the range of the mean Jacobian from the centre."""
        pairs = [(self._jacobians[i + 1], self._means[i]) for i in range(self._spokes)]
        pairs.append((self._jacobians[0], self._jacobians[0]))
        return min(float(torch.linalg.svdvals(J.T @ _range(mean))[-1]) for J, mean in pairs)

    def turn(self) -> float:
        gaps = ((mean - self._jacobians[k]) for mean, ends in zip(self._means, self._ends, strict=True) for k in ends)
        return max(float(torch.linalg.matrix_norm(gap, ord=2)) for gap in gaps)

    def bend(self) -> float:
        J, x = self._jacobians, self._samples
        slopes = (torch.linalg.matrix_norm(J[i] - J[j], ord=2) / (x[i] - x[j]).norm() for i, j in self._ends)
        return max(float(slope) for slope in slopes)


def conditions(k: LandscapeConstants, *, noisy: bool = False) -> tuple[Condition, ...]:
    """The four conditions on L_R that the constants imply; ``noisy``: the message need not be that of any x."""
    seen = k.row_sigma_min if noisy else k.seen_sigma_min
    return (
        semi_smooth(2 * k.turn, k.sigma_max**2, 0.5),
        semi_lipschitz_gradient(32**0.5 * k.turn, 8**0.5 * k.sigma_max**2, 1.0),
        semi_strongly_convex(2 * k.turn, k.segment_sigma_min**2, 0.5),
        non_critical(2 * seen, 2 * k.sigma_max),
    )


def field_of(update: LocalUpdate, o: Observation, y: Tensor) -> Field:
    """L_R(x) = |R G(x) - s|² and its gradient, in the paper's own units (an `Objective` rescales them)."""

    def field(x: Tensor) -> tuple[float, Tensor]:
        g, pull = update.pull(o.w, x, y)
        r = o.sketch(g) - o.s
        return float(r @ r), 2 * pull(o.desketch(r))

    return field


def _range(J: Tensor) -> Tensor:
    """An orthonormal basis of the range of J."""
    U, values, _ = torch.linalg.svd(J, full_matrices=False)
    return U[:, values > 1e-10 * values[0]] if values[0] > 0 else U[:, :1]


def _singular_values(o: Observation) -> Tensor:
    if o.R is None:
        return torch.ones(1, dtype=torch.float64)
    gram = o.R.sketch(o.R.desketch(torch.eye(o.R.b, dtype=torch.float64)))
    return torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
