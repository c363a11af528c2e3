"""Row: one statement compared with one experiment, and the rule by which it passes.

The rule was fixed before any result was seen. Sampled: a bound holds when mean - 3.3 standard errors <= bound in every
round. Exact: when the expectation is at most the bound up to rounding. ``worst_ratio`` is measured/bound in the round
where the statement is pressed hardest, that is where the lower limit is highest. One cut came later: rounds whose bound
has fallen below 1e-12 of the first are left out, since rounding errors exceed it there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["TOLERANCE", "Row", "exact_row", "frequency_row", "sampled_row"]

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = 3.3  # standard errors
_ROUNDING = 1e-6
_PRECISION = 1e-12  # rounds whose bound has fallen below this part of the first are beyond double precision


@dataclass(frozen=True)
class Row:
    """One line of the report.

    ``refuted`` marks a printed statement that is shown to be false; ``checks`` counts the experiments a row speaks for.
    """

    theorem: str
    setting: str
    family: str
    worst_ratio: float
    holds: bool
    corrected: bool
    method: str
    refuted: bool = False
    checks: int = 1

    @property
    def as_expected(self) -> bool:
        """A statement holds, or a refuted one is violated."""
        return self.holds is not self.refuted

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def sampled_row(theorem: str, setting: str, family: str, samples: Array, bound: Array, **flags: bool) -> Row:
    """``samples`` (rounds, seeds) of a quantity whose mean should stay below ``bound`` (rounds,)."""
    kept = bound >= _PRECISION * bound[0]
    samples, bound = samples[kept], bound[kept]
    mean, error = samples.mean(1), samples.std(1, ddof=1) / np.sqrt(samples.shape[1])
    pressed = (mean - TOLERANCE * error) / bound
    worst = int(np.argmax(pressed))
    holds = bool(pressed[worst] <= 1 + _ROUNDING)
    return Row(
        theorem, setting, family, float(mean[worst] / bound[worst]), holds, _corrected(flags), "sampled", **flags
    )


def exact_row(theorem: str, setting: str, family: str, expected: Array, bound: Array, **flags: bool) -> Row:
    """``expected`` (rounds,) exact expectations that should stay below ``bound``."""
    kept = bound >= _PRECISION * bound[0]
    ratio = float(np.max(expected[kept] / bound[kept]))
    return Row(theorem, setting, family, ratio, ratio <= 1 + _ROUNDING, _corrected(flags), "exact", **flags)


def frequency_row(theorem: str, setting: str, family: str, failures: Array, delta: float, **flags: bool) -> Row:
    """``failures`` (draws,) of an event whose probability should be at most ``delta``."""
    rate = float(failures.mean())
    error = float(np.sqrt(max(rate * (1 - rate), 1e-12) / len(failures)))
    holds = rate - TOLERANCE * error <= delta
    return Row(theorem, setting, family, rate / delta, holds, _corrected(flags), "sampled", **flags)


def _corrected(flags: dict[str, bool]) -> bool:
    return flags.pop("corrected", False)
