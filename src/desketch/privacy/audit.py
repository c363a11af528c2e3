"""Lower bounds on epsilon from what a mechanism really does, to hold against the upper bound it claims.

An adversary scores releases made with and without a worst-case unit.  Thresholding the score is a test; if the release
is mu-GDP, every test obeys ``Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu`` (Dong, Roth, Su 2022).  Clopper-Pearson limits on
both error rates, at a threshold chosen on other draws, make that a lower bound on mu, hence on epsilon at any delta,
that fails with probability at most ``1 - confidence``.  ``direct`` is the same without assuming a Gaussian trade-off:
``log((TPR - delta) / FPR)``.

`one_run_bound` needs a single run with many canaries (Steinke, Nasr, Jagielski 2023); it is weak and for reports only.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError
from desketch.privacy.events import check_delta

__all__ = ["AuditResult", "audit_scores", "gaussian_epsilon", "one_run_bound"]

Scores = npt.NDArray[np.float64]
_THRESHOLDS = 64


@dataclass(frozen=True)
class AuditResult:
    """What an adversary achieved beside what was claimed; ``violation`` means the claim is refuted."""

    adversary: str
    claimed_epsilon: float
    delta: float
    lower_bound: float
    direct: float
    draws: int
    confidence: float

    @property
    def violation(self) -> bool:
        """Whether the lower bound exceeds the claim."""
        return self.lower_bound > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"violation": self.violation}


def audit_scores(
    present: Scores, absent: Scores, *, claimed_epsilon: float, delta: float, confidence: float, adversary: str
) -> AuditResult:
    """Bound epsilon from below by scores of releases with and without the unit; the first halves pick the threshold."""
    check_delta(delta)
    if not 0 < confidence < 1 or min(len(present), len(absent)) < 100:
        raise InputError(
            f"an audit needs a confidence in (0, 1) and 100 draws of each world, got {confidence} and "
            f"{len(present)}, {len(absent)}"
        )
    half_in, half_out = len(present) // 2, len(absent) // 2
    tail = (1 - confidence) / 2
    threshold = _best_threshold(present[:half_in], absent[:half_out], tail)
    (fpr,), (fnr,) = _error_limits(present[half_in:], absent[half_out:], np.array([threshold]), tail)
    mu = max(0.0, float(_separation(fpr, fnr)))
    power = 1 - fnr - delta
    direct = max(0.0, math.log(power / fpr)) if power > 0 else 0.0
    return AuditResult(
        adversary=adversary,
        claimed_epsilon=claimed_epsilon,
        delta=delta,
        lower_bound=gaussian_epsilon(mu, delta),
        direct=direct,
        draws=len(present),
        confidence=confidence,
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-GDP: solves ``Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = delta`` (Balle, Wang 2018)."""
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtr

    def excess(e: float) -> float:
        return float(ndtr(mu / 2 - e / mu) - math.exp(min(700.0, e + float(log_ndtr(-mu / 2 - e / mu)))) - delta)

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(excess, 0.0, high, xtol=1e-10))


def one_run_bound(guesses: int, correct: int, *, canaries: int, delta: float, confidence: float) -> float:
    """Epsilon refuted by ``correct`` right guesses of ``guesses`` on ``canaries`` coin flips in one run.

    If the run were (epsilon, delta)-DP, the number of right guesses would exceed ``v`` with probability at most
    ``P[Bin(r, p) >= v] + 2 m delta max_i P[v - i <= Bin(r, p) < v] / i``, ``p = e^epsilon / (1 + e^epsilon)``.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(f"need correct <= guesses <= canaries, got {correct}, {guesses}, {canaries}")
    from scipy.stats import binom

    def p_value(epsilon: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))
        below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, p))
        slack = float((below / np.arange(1, correct + 1)).max()) if correct else 0.0
        return float(binom.sf(correct - 1, guesses, p)) + 2 * canaries * delta * slack

    low, high = 0.0, 30.0
    if p_value(low) > 1 - confidence:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= 1 - confidence else (low, middle)
    return low


def _best_threshold(present: Scores, absent: Scores, tail: float) -> float:
    """The threshold that would have proved the most on these draws."""
    thresholds = np.quantile(np.concatenate([present, absent]), np.linspace(0.005, 0.995, _THRESHOLDS))
    return float(thresholds[int(np.argmax(_separation(*_error_limits(present, absent, thresholds, tail))))])


def _error_limits(present: Scores, absent: Scores, thresholds: Scores, tail: float) -> tuple[Scores, Scores]:
    """Clopper-Pearson upper limits on (FPR, FNR) at each threshold."""
    false_alarms = np.array([np.sum(absent > t) for t in thresholds])
    misses = np.array([np.sum(present <= t) for t in thresholds])
    return _upper_limit(false_alarms, len(absent), tail), _upper_limit(misses, len(present), tail)


def _separation(fpr: Any, fnr: Any) -> Any:
    from scipy.special import ndtri

    return -ndtri(fpr) - ndtri(fnr)


def _upper_limit(hits: npt.NDArray[np.int64], trials: int, tail: float) -> Scores:
    """Clopper-Pearson: the largest rate under which so few hits still have probability ``tail``."""
    from scipy.stats import beta

    return np.where(hits >= trials, 1.0, beta.ppf(1 - tail, hits + 1, np.maximum(trials - hits, 1)))
