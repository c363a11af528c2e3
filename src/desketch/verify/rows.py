"""Row: one statement compared with one experiment, and the rule by which it passes.

*Sampled*: a bound on a mean holds when mean - 3.3 standard errors <= bound in every round. *Exact*: the expectation is
at most the bound up to rounding. *One round*: a statement about the expectation over one round's sketch, both sides
of which belong to a run; the mean of left/right over all rounds and runs is at most 1 within 4.5 standard errors (given
the past, each round is an independent trial). *Every run*: the left side is at most the right in every run, round and
step up to rounding; an identity, when the two sides differ by rounding only. ``worst_ratio`` is measured/bound where
the statement is pressed hardest.

The 3.3 standard errors and the exact rule were fixed before any result was seen.  Three rules came after results, each
because true statements had failed: Student's t in place of the normal law where runs are few (6 to 16 of them gave
false alarms); pooling over rounds at 4.5 standard errors for the statements about one round, many of which are
equalities; and the cut at 1e-12 of the largest value, below which rounding errors exceed what is compared.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import norm as gauss
from scipy.stats import t as student

from desketch.verify.places import place

__all__ = [
    "TOLERANCE",
    "WIDE",
    "Row",
    "every_row",
    "exact_row",
    "frequency_row",
    "identity_row",
    "one_round_row",
    "sampled_row",
    "unbiased_row",
]

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = 3.3  # standard errors
_ROUNDING = 1e-6
WIDE = 4.5  # standard errors, where many equalities are tested
_IDENTITY = 1e-9
_PRECISION = 1e-12  # values below this part of the largest are beyond double precision


@dataclass(frozen=True)
class Row:
    """One line of the report.

    ``refuted`` marks a printed statement that fails; ``slip`` says that the paper itself uses the right one elsewhere,
    so that it is a misprint and no false statement.  ``checks`` counts the experiments a row speaks for.
    """

    theorem: str
    setting: str
    family: str
    worst_ratio: float
    holds: bool
    corrected: bool
    method: str
    refuted: bool = False
    slip: bool = False
    checks: int = 1

    @property
    def as_expected(self) -> bool:
        """A statement holds, or a refuted one is violated."""
        return self.holds is not self.refuted

    @property
    def verdict(self) -> str:
        """One word or two for the report."""
        if self.as_expected:
            return ("slip" if self.slip else "refuted") if self.refuted else "holds"
        return "not refuted" if self.refuted else "VIOLATED"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields, where the paper states it, and the verdict."""
        return {**asdict(self), "paper": place(self.theorem), "verdict": self.verdict}


def sampled_row(theorem: str, setting: str, family: str, samples: Array, bound: Array, **flags: bool) -> Row:
    """``samples`` (rounds, seeds) of a quantity whose mean should stay below ``bound`` (rounds,)."""
    kept = bound >= _PRECISION * bound[0]
    samples, bound = samples[kept], bound[kept]
    mean, error = samples.mean(1), samples.std(1, ddof=1) / np.sqrt(samples.shape[1])
    pressed = (mean - _allowance(TOLERANCE, samples.shape[1]) * error) / bound
    worst = int(np.argmax(pressed))
    holds = bool(pressed[worst] <= 1 + _ROUNDING)
    return _row(theorem, setting, family, mean[worst] / bound[worst], holds, "sampled", flags)


def one_round_row(theorem: str, setting: str, family: str, left: Array, right: Array, **flags: bool) -> Row:
    """E[left | past] should be at most ``right`` > 0, which the past decides; arrays of any one shape."""
    kept = right > _PRECISION * right.max()
    ratio = left[kept] / right[kept]
    error = ratio.std(ddof=1) / np.sqrt(ratio.size)
    holds = bool(ratio.mean() - _allowance(WIDE, ratio.size) * error <= 1 + _ROUNDING)
    return _row(theorem, setting, family, ratio.mean(), holds, "one round", flags)


def unbiased_row(theorem: str, setting: str, family: str, samples: Array, target: float, **flags: bool) -> Row:
    """The mean of ``samples`` (draws,) should be ``target``; the ratio is the error over 4.5 standard errors."""
    error = float(samples.std(ddof=1)) / np.sqrt(samples.size)
    resolution = _allowance(WIDE, samples.size) * error + _ROUNDING * (1 + abs(target))
    ratio = abs(float(samples.mean()) - target) / resolution
    return _row(theorem, setting, family, ratio, ratio <= 1, "sampled", flags)


def every_row(theorem: str, setting: str, family: str, left: Array, right: Array, **flags: bool) -> Row:
    """``left`` should be at most ``right`` entry by entry: an inequality without expectation."""
    floor = _PRECISION * right.max()
    kept = right > floor
    ratio = float(np.max(left[kept] / right[kept], initial=0.0))
    small = bool(np.all(left[~kept] <= 2 * floor))  # what was cut is small on both sides
    return _row(theorem, setting, family, ratio, ratio <= 1 + _ROUNDING and small, "every run", flags)


def identity_row(theorem: str, setting: str, family: str, error: Array, scale: Array, **flags: bool) -> Row:
    """``error`` of an identity whose terms are of size ``scale``: rounding only; the ratio is in units of 1e-9."""
    ratio = float(error.max() / scale.max()) / _IDENTITY
    return _row(theorem, setting, family, ratio, ratio <= 1, "every run", flags)


def exact_row(theorem: str, setting: str, family: str, expected: Array, bound: Array, **flags: bool) -> Row:
    """``expected`` (rounds,) exact expectations that should stay below ``bound``."""
    kept = bound >= _PRECISION * bound[0]
    ratio = float(np.max(expected[kept] / bound[kept]))
    return _row(theorem, setting, family, ratio, ratio <= 1 + _ROUNDING, "exact", flags)


def frequency_row(theorem: str, setting: str, family: str, failures: Array, delta: float, **flags: bool) -> Row:
    """``failures`` (draws,) of an event whose probability should be at most ``delta``."""
    rate = float(failures.mean())
    error = float(np.sqrt(max(rate * (1 - rate), 1e-12) / len(failures)))
    return _row(theorem, setting, family, rate / delta, rate - TOLERANCE * error <= delta, "sampled", flags)


@cache
def _allowance(normal: float, samples: int) -> float:
    """How many estimated standard errors of ``samples`` give the certainty of ``normal`` true ones."""
    return float(student.isf(gauss.sf(normal), samples - 1))


def _row(
    theorem: str, setting: str, family: str, ratio: float, holds: bool, method: str, flags: dict[str, bool]
) -> Row:
    corrected, refuted, slip = (flags.get(name, False) for name in ("corrected", "refuted", "slip"))
    return Row(theorem, setting, family, float(ratio), bool(holds), corrected, method, refuted=refuted, slip=slip)
