"""The privacy loss distribution of one Poisson-sampled Gaussian, from its hockey-stick divergence in closed form.

For Φ the normal distribution function, z the noise multiplier, ℓ the loss of the release without sampling, and

    δ_G(ℓ) = Φ(1/(2z) - ℓz) - e^ℓ Φ(-1/(2z) - ℓz)                      (Balle and Wang 2018)

a release that samples at rate q has, under removal and under addition of one unit,

    δ(ε) = q δ_G(ℓ),            ℓ = log(1 + (e^ε - 1)/q),              1 - e^ε where no such ℓ exists;
    δ(ε) = q e^(ε-ℓ) δ_G(ℓ),    ℓ = -log(1 + (e^-ε - 1)/q),            0 where no such ℓ exists.

dp-accounting has the same distribution, computed number by number, in ten times the time; here it connects the dots
(Doroshenko et al. 2022), composes and answers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["add_remove_loss", "divergence"]

Floats = npt.NDArray[np.float64]

_TAIL = 0.5 * math.exp(-50.0)  # of a Gaussian; beyond it losses count as infinite


def add_remove_loss(q: float, z: float, interval: float) -> Any:
    """The loss of one release under addition and removal, pessimistic on a grid of this interval."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from scipy.special import ndtri

    most = (0.5 - ndtri(_TAIL) * z) / z**2  # of |ℓ|, but for the tails

    def one(removed: bool) -> Any:
        low, high = (_sampled(sign * most, q, removed=removed) for sign in (-1, 1))
        first, last = math.floor(low / interval), math.ceil(high / interval)
        deltas = divergence(np.arange(first, last + 1, dtype=np.float64) * interval, q, z, removed=removed)
        return create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)

    return PrivacyLossDistribution(one(True)) if q == 1 else PrivacyLossDistribution(one(True), one(False))


def divergence(epsilon: Floats, q: float, z: float, *, removed: bool) -> Floats:
    """δ(ε) of one release, for a unit that is removed or added."""
    from scipy.special import log_ndtr

    loss, exists = _unsampled(epsilon, q, removed=removed)
    delta = q * (np.exp(log_ndtr(0.5 / z - loss * z)) - np.exp(loss + log_ndtr(-0.5 / z - loss * z)))
    if not removed:
        delta *= np.exp(np.where(exists, epsilon - loss, 0.0))
    return np.clip(np.where(exists, delta, -np.expm1(np.minimum(epsilon, 0.0)) if removed else 0.0), 0.0, 1.0)


def _sampled(loss: float, q: float, *, removed: bool) -> float:
    """ε of a sampled release from the loss ℓ that it has without sampling."""
    if q == 1:
        return loss
    sign = 1 if removed else -1
    return sign * float(np.logaddexp(math.log1p(-q), math.log(q) + sign * loss))


def _unsampled(epsilon: Floats, q: float, *, removed: bool) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The inverse of `_sampled`, and where there is one."""
    if q == 1:
        return epsilon, np.ones(epsilon.shape, dtype=bool)
    sign = 1 if removed else -1
    e = sign * epsilon
    exists = e > math.log1p(-q)
    e = np.where(exists, e, 0.0)
    return sign * (e + np.log(-np.expm1(-e) + q * np.exp(-e)) - math.log(q)), exists
