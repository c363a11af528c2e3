"""Guarantees that are true and say little: warned of at every entrance, before anything is released.

A delta of 1/N or more allows to publish one of N units outright; an epsilon above 10 allows odds of 22,000 to 1.
"""

from __future__ import annotations

import math
import warnings

from desketch.errors import PrivacyWarning

__all__ = ["EPSILON_CAUTION", "warn_of_weak_privacy"]

EPSILON_CAUTION = 10.0


def warn_of_weak_privacy(
    *, unit: str, units: int | None, delta: float, epsilon: float | None, stacklevel: int = 3
) -> None:
    """Warn of a delta too large for ``units`` examples or clients, and of an epsilon above 10; None is unknown."""
    if units is not None and delta * units >= 1:
        _warn(
            f"delta = {delta:g} is not below 1/N for the {units} {unit}s that are protected: publishing one of them "
            f"outright would satisfy it; choose delta well below {1 / units:.2g}",
            stacklevel,
        )
    if epsilon is not None and epsilon > EPSILON_CAUTION:
        odds = f"{math.exp(epsilon):,.0f}" if epsilon < 30 else f"e^{epsilon:.0f}"
        _warn(
            f"epsilon = {epsilon:.3g} is above {EPSILON_CAUTION:g}: an observer may learn at odds of {odds} to 1 "
            f"whether a given {unit} took part; add noise, ask fewer {unit}s a round, or train for fewer rounds",
            stacklevel,
        )


def _warn(text: str, stacklevel: int) -> None:
    warnings.warn(text, PrivacyWarning, stacklevel=stacklevel + 1)
