"""The paper's function table (``tab:table1``) with our verdict beside the printed one.

Rows the paper marks N/A have no function; ``wᵀx`` is written t with |w| = 1, and |x|², 1/|x| are taken along a ray.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from desketch.theory.falsifier import PROPERTIES, Profile, rule

__all__ = ["FunctionRow", "Verdict", "function_table"]


@dataclass(frozen=True)
class Verdict:
    """Printed and re-derived, with the constants found on three nested grids."""

    paper: bool
    ours: bool
    evidence: str


@dataclass(frozen=True)
class FunctionRow:
    """One function and its four properties."""

    function: str
    domain: str
    verdicts: dict[str, Verdict]


def _sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t)) if t >= 0 else math.exp(t) / (1 + math.exp(t))


def _softplus(t: float) -> float:
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


def _oscillation(t: float) -> float:
    return t * t * math.sin(1 / t) if t else 0.0


def _oscillation_slope(t: float) -> float:
    return 2 * t * math.sin(1 / t) - math.cos(1 / t) if t else 0.0


def _zeros(level: int) -> list[float]:
    """Zeros of sin(1/t), closer to 0 at every level."""
    return [s / (k * math.pi) for k in (1, 10**level, 10**level + 1) for s in (-1, 1)]


def _tanh_slope(t: float) -> float:
    return 1 - math.tanh(t) ** 2


_BALL = (1.0, 1.0, 1.0)
_COSH = (1.0, 10.0, 100.0)
_YES, _NO = True, False

# function, domain, profile, the paper's four marks
_TABLE: tuple[tuple[str, str, Profile, tuple[bool, bool, bool, bool]], ...] = (
    ("|x|²", "", Profile(lambda t: t * t, lambda t: 2 * t), (_YES, _YES, _YES, _YES)),
    ("xᵀAx - λ_min(A)", "A ≻ 0", Profile(lambda t: t * t - 1, lambda t: 2 * t), (_YES, _YES, _YES, _NO)),
    (
        "sqrt(t + b)",
        "t ≥ 0, b = 1",
        Profile(lambda t: math.sqrt(t + 1), lambda t: 0.5 / math.sqrt(t + 1), low=0.0),
        (_YES, _YES, _NO, _NO),
    ),
    ("ln(1 + e^t)", "|t| ≤ 1", Profile(_softplus, _sigmoid, low=-1.0, high=1.0, reach=_BALL), (_YES, _YES, _NO, _YES)),
    ("sigmoid(t)", "", Profile(_sigmoid, lambda t: _sigmoid(t) * _sigmoid(-t)), (_YES, _YES, _NO, _NO)),
    (
        "t² sin(1/t)",
        "|t| ≤ 1, t ≠ 0",
        Profile(_oscillation, _oscillation_slope, low=-1.0, high=1.0, reach=_BALL, anchors=_zeros),
        (_YES, _NO, _NO, _YES),
    ),
    ("t² sin(1/t)", "", Profile(_oscillation, _oscillation_slope, anchors=_zeros), (_YES, _NO, _NO, _NO)),
    ("ln t", "t > 0", Profile(math.log, lambda t: 1 / t, low=0.0), (_YES, _NO, _NO, _NO)),
    ("cosh t", "|t| ≤ 1", Profile(math.cosh, math.sinh, low=-1.0, high=1.0, reach=_BALL), (_NO, _NO, _YES, _YES)),
    ("cosh t", "", Profile(math.cosh, math.sinh, reach=_COSH), (_NO, _NO, _YES, _NO)),
    ("ReLU(t)", "", Profile(lambda t: max(t, 0.0), lambda t: float(t > 0)), (_NO, _NO, _NO, _NO)),
    ("1/|x|", "x ≠ 0", Profile(lambda t: 1 / t, lambda t: -1 / t**2, low=0.0), (_NO, _NO, _NO, _NO)),
    ("tanh(t)", "", Profile(math.tanh, _tanh_slope), (_NO, _NO, _NO, _NO)),
)


def function_table() -> tuple[FunctionRow, ...]:
    """Judge every function of the paper's table."""
    rows = []
    for name, domain, profile, printed in _TABLE:
        rulings = rule(profile)
        verdicts = {
            prop: Verdict(mark, rulings[prop].holds, rulings[prop].evidence)
            for prop, mark in zip(PROPERTIES, printed, strict=True)
        }
        rows.append(FunctionRow(name, domain, verdicts))
    return tuple(rows)
