"""The landscape of L_R: pseudo-Hessian, its constants, and the paper's four conditions, estimated and put to the test.

For Φ(x) = ∇_x ∇_w F (m x d), the pseudo-kernel is ΦᵀΦ (d x d), with θ₁² <= eigenvalues <= θ₂²; G = ∇_w F is
β-Lipschitz in x; R has singular values in [γ₁, γ₂] and is τ-Lipschitz (τ = γ₂ = |R|).  Then L_R satisfies, with the
constants *as corrected here* (the paper's slips in brackets):

* semi-smooth (A, B, 1/2): A = 2τβ + 2θ₂γ₂, B = τ²β²   [printed B = τ²β: the proof squares β; units demand β²];
* non-critical point (2 σ_b(R Φᵀ), 2θ₂γ₂): |∇L|²/L carries the factor 4 [absent from the unsketched lemma].  The
  lower half needs every residual in R^b to be seen by Φ Rᵀ, hence b <= m; for b > m it is 0 [printed θ₁γ₁ bounds only
  min(d, m) eigenvalues of the kernel: the others are zero, so θ₁ = 0 whenever d > m];
* semi-Lipschitz gradient (√32 σ, √8 σ², 1), where σ = sup |R Φᵀ|;
* semi-strongly convex (4σ, inf σ_min(J̄)², 1/2), J̄ the mean of R Φᵀ over a segment: positive only when b >= m.

|R| is about sqrt(d/b), not 1, and a CountSketch with empty buckets has γ₁ = 0.  Suprema over R^m cannot be computed;
constants are suprema over points sampled from a ball, and `falsify` searches that ball for a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from desketch.attack.objective import Observation
from desketch.attack.update import LocalUpdate

__all__ = [
    "Condition",
    "Constants",
    "Field",
    "Verdict",
    "conditions",
    "estimate",
    "falsify",
    "field_of",
    "non_critical",
    "pseudo_hessian",
    "pseudo_kernel",
    "semi_lipschitz_gradient",
    "semi_smooth",
    "semi_strongly_convex",
]

Field = Callable[[Tensor], tuple[float, Tensor]]  # x -> (L(x), ∇L(x))


class _Point(NamedTuple):
    x: Tensor
    L: float
    grad: Tensor


def pseudo_hessian(update: LocalUpdate, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Φ(x, w) = ∇_x ∇_w F, as (m, d)."""
    return update.jacobian(w, x, y)[1]


def pseudo_kernel(Phi: Tensor) -> Tensor:
    """K(x) = ΦᵀΦ, d x d."""
    return Phi.T @ Phi


@dataclass(frozen=True)
class Constants:
    """Suprema and infima over the sampled ball; ``sigma`` refers to R Φᵀ, ``theta`` to Φ, ``gamma`` to R.

    ``segment_sigma_min`` is the least σ_min of a mean Jacobian, ``bend`` the Lipschitz constant of x -> R Φᵀ,
    ``row_sigma_min`` the b-th singular value of R Φᵀ (0 when b > m).
    """

    m: int
    d: int
    b: int
    theta_1: float
    theta_2: float
    beta: float
    gamma_1: float
    gamma_2: float
    tau: float
    sigma_min: float
    sigma_max: float
    segment_sigma_min: float
    row_sigma_min: float
    bend: float


def estimate(
    update: LocalUpdate, o: Observation, x: Tensor, y: Tensor, *, radius: float, points: int = 16, seed: int = 0
) -> Constants:
    """Constants of F and R over a ball around x, from ``points`` samples of it (x itself included)."""
    generator = torch.Generator().manual_seed(seed)
    samples = [x, *(_in_ball(x, radius, generator) for _ in range(points - 1))]
    thetas, sigmas, sketched = [], [], []
    for sample in samples:
        Phi = pseudo_hessian(update, o.w, sample, y)
        thetas.append(torch.linalg.svdvals(Phi))
        sketched.append(o.sketch(Phi).T)
        sigmas.append(torch.linalg.svdvals(sketched[-1]))
    m, d, b = x.numel(), o.w.numel(), o.s.numel()
    gammas = _singular_values(o)
    theta_2 = max(float(v[0]) for v in thetas)
    means = [(J + sketched[0]) / 2 for J in sketched]
    return Constants(
        m=m,
        d=d,
        b=b,
        theta_1=min(float(v[-1]) for v in thetas) if d <= m else 0.0,
        theta_2=theta_2,
        beta=theta_2,  # the supremum of |Φ| over a convex set is the Lipschitz constant of G there
        gamma_1=float(gammas[0]),
        gamma_2=float(gammas[-1]),
        tau=float(gammas[-1]),
        sigma_min=min(float(v[m - 1]) for v in sigmas) if b >= m else 0.0,
        sigma_max=max(float(v[0]) for v in sigmas),
        segment_sigma_min=min(float(torch.linalg.svdvals(J)[m - 1]) for J in means) if b >= m else 0.0,
        row_sigma_min=min(float(v[b - 1]) for v in sigmas) if b <= m else 0.0,
        bend=max(
            float(torch.linalg.matrix_norm(J - sketched[0], ord=2) / (sample - x).norm())
            for sample, J in zip(samples[1:], sketched[1:], strict=True)
        ),
    )


@dataclass(frozen=True)
class Condition:
    """An inequality between values and gradients of L at two points; ``ratio`` <= 1 when it holds there."""

    name: str
    constants: dict[str, float]
    ratio: Callable[[_Point, _Point], float]


@dataclass(frozen=True)
class Verdict:
    """The worst left/right ratio a search found; above 1 the condition is refuted, below it is only not refuted."""

    condition: Condition
    worst: float
    pairs: int

    @property
    def refuted(self) -> bool:
        """A violation was found (beyond rounding)."""
        return self.worst > 1 + 1e-9


def semi_smooth(a: float, b: float, p: float) -> Condition:
    """L(y) <= L(x) + <∇L(x), y-x> + b|y-x|² + a|y-x|^{2-2p} L(x)^p."""

    def ratio(x: _Point, y: _Point) -> float:
        step = y.x - x.x
        n = float(step.norm())
        return _ratio(y.L - x.L - float(x.grad @ step), b * n**2 + a * n ** (2 - 2 * p) * x.L**p)

    return Condition("semi-smooth", {"a": a, "b": b, "p": p}, ratio)


def semi_lipschitz_gradient(alpha: float, beta: float, p: float) -> Condition:
    """|∇L(x) - ∇L(y)|² <= β²|x-y|² + α²|x-y|^{2-2p} L(x)^p."""

    def ratio(x: _Point, y: _Point) -> float:
        n = float((y.x - x.x).norm())
        left = float((x.grad - y.grad).square().sum())
        return _ratio(left, beta**2 * n**2 + alpha**2 * n ** (2 - 2 * p) * x.L**p)

    return Condition("semi-Lipschitz gradient", {"alpha": alpha, "beta": beta, "p": p}, ratio)


def semi_strongly_convex(c: float, d: float, p: float) -> Condition:
    """L(x) >= L(y) + <∇L(y), x-y> + d|x-y|² - c|x-y|^{2-2p} L(y)^p."""

    def ratio(x: _Point, y: _Point) -> float:
        step = x.x - y.x
        n = float(step.norm())
        return _ratio(d * n**2, x.L - y.L - float(y.grad @ step) + c * n ** (2 - 2 * p) * y.L**p)

    return Condition("semi-strongly convex", {"c": c, "d": d, "p": p}, ratio)


def non_critical(theta_1: float, theta_2: float) -> Condition:
    """θ₁² L(x) <= |∇L(x)|² <= θ₂² L(x)."""

    def ratio(x: _Point, y: _Point) -> float:
        g = float(x.grad.square().sum())
        return max(_ratio(theta_1**2 * x.L, g), _ratio(g, theta_2**2 * x.L))

    return Condition("non-critical point", {"theta_1": theta_1, "theta_2": theta_2}, ratio)


def conditions(k: Constants) -> tuple[Condition, ...]:
    """The four conditions on L_R that the constants imply, corrected as the module says."""
    sigma = k.sigma_max
    return (
        semi_smooth(2 * k.tau * k.beta + 2 * k.theta_2 * k.gamma_2, (k.tau * k.beta) ** 2, 0.5),
        semi_lipschitz_gradient(32**0.5 * sigma, 8**0.5 * sigma**2, 1.0),
        semi_strongly_convex(4 * sigma, k.segment_sigma_min**2, 0.5),
        non_critical(2 * k.row_sigma_min, 2 * k.theta_2 * k.gamma_2),
    )


def falsify(
    condition: Condition, field: Field, x: Tensor, *, radius: float, pairs: int = 60, climbs: int = 40, seed: int = 0
) -> Verdict:
    """Search the ball for the pair that violates ``condition`` most: samples at many scales, then a hill climb."""
    generator = torch.Generator().manual_seed(seed)
    closest = 1e-4 * radius  # nearer pairs would only measure rounding

    def score(p: Tensor, q: Tensor) -> float:
        return condition.ratio(_at(field, p), _at(field, q)) if float((p - q).norm()) >= closest else -1.0

    samples = list(_pairs(x, radius, pairs, generator))
    worst, best = max(((score(p, q), (p, q)) for p, q in samples), key=lambda scored: scored[0])
    width = radius / 4
    for _ in range(climbs):
        p, q = (_clip(v + width * _direction(v, generator), x, radius) for v in best)
        ratio = score(p, q)
        worst, best, width = (ratio, (p, q), width * 1.2) if ratio > worst else (worst, best, width * 0.9)
    return Verdict(condition, worst, pairs + climbs)


def field_of(update: LocalUpdate, o: Observation, y: Tensor) -> Field:
    """L_R(x) = |R G(x) - s|² and its gradient, in the paper's own units (an `Objective` rescales them)."""

    def field(x: Tensor) -> tuple[float, Tensor]:
        g, pull = update.pull(o.w, x, y)
        r = o.sketch(g) - o.s
        return float(r @ r), 2 * pull(o.desketch(r))

    return field


def _at(field: Field, x: Tensor) -> _Point:
    L, grad = field(x)
    return _Point(x, L, grad)


def _pairs(x: Tensor, radius: float, pairs: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for i in range(pairs):
        p = _in_ball(x, radius, generator)
        gap = radius * 10.0 ** (-3 * (i % 7) / 6)
        yield p, _clip(p + gap * _direction(x, generator), x, radius)


def _direction(x: Tensor, generator: torch.Generator) -> Tensor:
    v = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return v / v.norm()


def _in_ball(x: Tensor, radius: float, generator: torch.Generator) -> Tensor:
    length = radius * float(torch.rand((), generator=generator)) ** (1 / x.numel())
    return x + length * _direction(x, generator)


def _clip(p: Tensor, x: Tensor, radius: float) -> Tensor:
    gap = p - x
    return x + gap * min(1.0, radius / max(float(gap.norm()), 1e-300))


def _ratio(left: float, right: float) -> float:
    """left/right for an inequality left <= right, with 0 <= 0 counted as met."""
    if left <= 0:
        return 0.0
    return left / right if right > 0 else float("inf")


def _singular_values(o: Observation) -> Tensor:
    if o.R is None:
        return torch.ones(1, dtype=torch.float64)
    gram = o.R.sketch(o.R.desketch(torch.eye(o.R.b, dtype=torch.float64)))
    return torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
