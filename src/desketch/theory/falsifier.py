"""Falsifier: does a function have a property "for some constants"? Search for pairs that need ever larger ones.

The properties are those of the paper's attack analysis, for L: R^m -> R and some p in [0, 1]:

* semi-smooth (``def:semi_smooth:app``):             L(y) <= L(x) + <∇L(x), y-x> + b|y-x|² + a|y-x|^{2-2p} L(x)^p
* semi-Lipschitz gradient (``def:semi_lipschitz:app``): |∇L(x)-∇L(y)|² <= β²|x-y|² + α²|x-y|^{2-2p} L(x)^p
* semi-strongly convex (``def:semi_strong_convex``): L(x) >= L(y) + <∇L(y), x-y> + d|x-y|² - c|x-y|^{2-2p} L(y)^p, d > 0
* non-critical point (``def:no_critical_point:app``): θ_1² L <= |∇L|² <= θ_2² L, θ_1 > 0

A function is given as a profile along one line. Of three grids each reaches 100 times further and resolves 100 times
finer than the one before; a property holds when some p has a constant that settles, and is falsified when every p
needs one that keeps growing (for a lower bound: shrinking). Two readings are fixed. L^p needs L >= 0, so where L is
negative only p = 0 is left. Semi-strong convexity excludes p = 0, where any c > d would let in every smooth function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["PROPERTIES", "Profile", "Ruling", "rule"]

_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_WEIGHTS = (1.0, 1e2, 1e4)
_LEVELS = 3
_SETTLED = 2.0  # a constant that grows less than this over a hundredfold finer grid has settled
_FINEST = 1e-5  # closer pairs drown in rounding


@dataclass(frozen=True)
class Profile:
    """A function of one variable, its derivative, and where it lives; ``reach`` is how far each grid goes."""

    value: Callable[[float], float]
    slope: Callable[[float], float]
    low: float = -math.inf
    high: float = math.inf
    reach: tuple[float, ...] = (1.0, 1e2, 1e4)
    anchors: Callable[[int], list[float]] = lambda level: [0.0]

    def grid(self, level: int) -> list[float]:
        """Points of grid ``level``: geometric from every finite end and anchor outwards."""
        fine = 10.0 ** (-1 - 2 * level)
        steps = _geometric(fine, self.reach[level], 2 + 4 * (level + 1))
        ends = [e for e in (self.low, self.high) if math.isfinite(e)]
        points = {c + s * step for c in (*ends, *self.anchors(level)) for step in (0.0, *steps) for s in (-1, 1)}
        return sorted(p for p in points if self.low <= p <= self.high and self._defined(p))

    def _defined(self, t: float) -> bool:
        try:
            return math.isfinite(self.value(t)) and math.isfinite(self.slope(t))
        except (ValueError, ZeroDivisionError, OverflowError):
            return False


@dataclass(frozen=True)
class Ruling:
    """Whether the property holds, and the constants of the three grids that say so."""

    holds: bool
    evidence: str


@dataclass(frozen=True)
class _Sampled:
    t: list[float]
    L: list[float]
    slope: list[float]

    def pairs(self) -> Iterator[tuple[float, float, float, float, float]]:
        """(L(x), L'(x), L(y), L'(y), y - x) for all pairs not too close."""
        for x, Lx, gx in zip(self.t, self.L, self.slope, strict=True):
            for y, Ly, gy in zip(self.t, self.L, self.slope, strict=True):
                if abs(y - x) >= _FINEST * max(1.0, abs(x)):
                    yield Lx, gx, Ly, gy, y - x


def _geometric(low: float, high: float, count: int) -> list[float]:
    return [low * (high / low) ** (i / (count - 1)) for i in range(count)]


def _helped(L: float, h: float, p: float) -> float:
    """|h|^{2-2p} L^p."""
    return abs(h) ** (2 - 2 * p) * L**p


def _semi_smooth(grids: list[_Sampled]) -> Ruling:
    def needed(s: _Sampled, p: float) -> float:
        gaps = ((Ly - Lx - gx * h) / (h * h + _helped(Lx, h, p)) for Lx, gx, Ly, _, h in s.pairs())
        return max(0.0, *gaps)

    return _some_settles(grids, needed)


def _semi_lipschitz(grids: list[_Sampled]) -> Ruling:
    def needed(s: _Sampled, p: float) -> float:
        return max((gx - gy) ** 2 / (h * h + _helped(Lx, h, p)) for Lx, gx, _, gy, h in s.pairs())

    return _some_settles(grids, needed)


def _some_settles(grids: list[_Sampled], needed: Callable[[_Sampled, float], float]) -> Ruling:
    best: list[float] | None = None
    for p in _admissible(grids):
        constants = [needed(s, p) for s in grids]
        if constants[-1] <= _SETTLED * constants[-2] + 1e-9:
            return Ruling(True, f"p={p:g}: constant {_trend(constants)}")
        if best is None or constants[-1] < best[-1]:
            best = constants
    return Ruling(False, f"every p needs a growing constant, at best {_trend(best or [])}")


def _semi_strongly_convex(grids: list[_Sampled]) -> Ruling:
    def kept(s: _Sampled, p: float, c: float) -> float:
        helps = ((Ly - Lx - gx * h + (c and c * _helped(Lx, h, p))) / (h * h) for Lx, gx, Ly, _, h in s.pairs())
        return min(helps)

    options = [(0.5, 0.0)] + [(p, c) for p in _admissible(grids) if 0 < p < 1 for c in _WEIGHTS]
    best: list[float] | None = None
    for p, c in options:
        constants = [kept(s, p, c) for s in grids]
        if constants[-1] > 1e-6 and constants[-1] * _SETTLED >= constants[-2]:
            return Ruling(True, f"c={c:g}: d {_trend(constants)}")
        if best is None or constants[-1] > best[-1]:
            best = constants
    return Ruling(False, f"no d > 0 survives, at best {_trend(best or [])}")


def _non_critical(grids: list[_Sampled]) -> Ruling:
    lows, highs = [], []
    for s in grids:
        if min(s.L) < 0:
            return Ruling(False, "L takes negative values")
        if any(L == 0 and g != 0 for L, g in zip(s.L, s.slope, strict=True)):
            return Ruling(False, "the gradient does not vanish where L does")
        ratios = [g * g / L for L, g in zip(s.L, s.slope, strict=True) if L > 0]
        lows.append(min(ratios))
        highs.append(max(ratios))
    settled = lows[-1] * _SETTLED >= lows[-2] > 0 and highs[-1] <= _SETTLED * highs[-2]
    return Ruling(settled and lows[-1] > 0, f"θ_1² {_trend(lows)}, θ_2² {_trend(highs)}")


def _admissible(grids: list[_Sampled]) -> tuple[float, ...]:
    return _POWERS if min(min(s.L) for s in grids) >= 0 else (0.0,)


def _trend(constants: list[float]) -> str:
    return " → ".join(f"{c:.3g}" for c in constants)


PROPERTIES: dict[str, Callable[[list[_Sampled]], Ruling]] = {
    "semi-smooth": _semi_smooth,
    "semi-Lipschitz gradient": _semi_lipschitz,
    "semi-strongly convex": _semi_strongly_convex,
    "non-critical point": _non_critical,
}


def rule(profile: Profile) -> dict[str, Ruling]:
    """Every property of ``profile``."""
    grids = []
    for level in range(_LEVELS):
        t = profile.grid(level)
        grids.append(_Sampled(t, [profile.value(x) for x in t], [profile.slope(x) for x in t]))
    return {name: judge(grids) for name, judge in PROPERTIES.items()}
