"""The four conditions of the attack analysis on a function L, and a search for points that violate them.

* semi-smooth (``def:semi_smooth:app``):                L(y) <= L(x) + <∇L(x), y-x> + b|y-x|² + a|y-x|^{2-2p} L(x)^p
* semi-Lipschitz gradient (``def:semi_lipschitz:app``): |∇L(x) - ∇L(y)|² <= β²|x-y|² + α²|x-y|^{2-2p} L(x)^p
* semi-strongly convex (``def:semi_strong_convex``):    L(x) >= L(y) + <∇L(y), x-y> + d|x-y|² - c|x-y|^{2-2p} L(y)^p
* non-critical point (``def:no_critical_point:app``):   θ₁² L(x) <= |∇L(x)|² <= θ₂² L(x)

`theory.falsifier` asks whether *some* constants do, for functions of one variable; here the constants are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Condition",
    "Field",
    "Finding",
    "falsify",
    "non_critical",
    "random_in_ball",
    "semi_lipschitz_gradient",
    "semi_smooth",
    "semi_smooth_of_lipschitz",
    "semi_strongly_convex",
]

Field = Callable[[Tensor], tuple[float, Tensor]]  # x -> (L(x), ∇L(x))


class _Point(NamedTuple):
    x: Tensor
    L: float
    grad: Tensor


@dataclass(frozen=True)
class Condition:
    """An inequality between values and gradients of L at two points; ``ratio`` <= 1 when it holds there."""

    name: str
    constants: dict[str, float]
    ratio: Callable[[_Point, _Point], float]


@dataclass(frozen=True)
class Finding:
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


def semi_smooth_of_lipschitz(alpha: float, beta: float, p: float) -> Condition:
    """A (α, β, p)-semi-Lipschitz gradient implies (α/(2-p), β/2, p/2)-semi-smooth (``lem:semi_lip_to_semi_smooth``).

    The lemma prints α in place of α/(2-p), which is weaker: integrating t^{1-p} over the segment gives 1/(2-p), and
    L = 1 + k t^{2-p} on t >= 0 attains it.
    """
    return semi_smooth(alpha / (2 - p), beta / 2, p / 2)


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


def falsify(
    condition: Condition, field: Field, x: Tensor, *, radius: float, pairs: int = 60, climbs: int = 40, seed: int = 0
) -> Finding:
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
    return Finding(condition, worst, pairs + climbs)


def random_in_ball(x: Tensor, radius: float, generator: torch.Generator) -> Tensor:
    """A uniform point of the ball around x."""
    length = radius * float(torch.rand((), generator=generator)) ** (1 / x.numel())
    return x + length * _direction(x, generator)


def _at(field: Field, x: Tensor) -> _Point:
    L, grad = field(x)
    return _Point(x, L, grad)


def _pairs(x: Tensor, radius: float, pairs: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for i in range(pairs):
        p = random_in_ball(x, radius, generator)
        gap = radius * 10.0 ** (-3 * (i % 7) / 6)
        yield p, _clip(p + gap * _direction(x, generator), x, radius)


def _direction(x: Tensor, generator: torch.Generator) -> Tensor:
    v = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return v / v.norm()


def _clip(p: Tensor, x: Tensor, radius: float) -> Tensor:
    gap = p - x
    return x + gap * min(1.0, radius / max(float(gap.norm()), 1e-300))


def _ratio(left: float, right: float) -> float:
    """left/right for an inequality left <= right, with 0 <= 0 counted as met."""
    if left <= 0:
        return 0.0
    return left / right if right > 0 else float("inf")
