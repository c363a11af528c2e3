"""Lower bounds on any attacker's error, and the noise that keeps it above a wanted level.

With J the whitened Jacobian of the stacked sketches at x, the Fisher information is JᵀJ:

* Cramér-Rao: an unbiased attacker has MSE >= tr((JᵀJ)⁻¹)/m.  Infinite when JᵀJ is singular, which says only that an
  attacker *without prior knowledge* is stuck.
* Bayesian (van Trees): over a Gaussian prior with covariance C, any attacker has average
  MSE >= tr((E[JᵀJ] + C⁻¹)⁻¹)/m.  `bayesian_at` is the same with JᵀJ at one point: what an attacker who knows the
  public mean and covariance gets there if the model is close to linear over the remaining uncertainty.  Knowing more
  than the covariance (the box, a generative model) can beat it: it is a bound for this prior, not for all of them.

Without noise both are zero when JᵀJ is regular: only noise, or too few measurements, protects.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.special import gammaln, logsumexp
from torch import Tensor

from desketch.attack.objective import Objective
from desketch.attack.prior import GaussianPrior
from desketch.attack.quality import mse_of, psnr

__all__ = [
    "Certificate",
    "bayesian_at",
    "box_probability",
    "certify",
    "cramer_rao",
    "noise_for_ceiling",
    "van_trees",
]

_RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Certificate:
    """Whether the stacked R_t Φ_t determine x locally.

    Attributes:
        unknowns: m.
        measurements: numbers observed, over all rounds.
        rank: numerical rank of the stacked Jacobian at the truth.
        sigma_min: its m-th singular value relative to the largest (0 when there are fewer rows than unknowns).
        rank_unsketched: rank of Φ itself: what an infinite number of rounds could reveal.
        rounds_to_identify: least number of rounds of this size whose measurements reach m; None when Φ is deficient.
        interior: unknowns strictly inside the box.
        box_probability: chance that generic measurements of this number pin a point of the box with this interior.

    """

    unknowns: int
    measurements: int
    rank: int
    sigma_min: float
    rank_unsketched: int
    rounds_to_identify: int | None
    interior: int
    box_probability: float

    @property
    def identifiable(self) -> bool:
        """Full column rank: locally no other x explains the message."""
        return self.rank == self.unknowns


def certify(objective: Objective, x: Tensor, prior: GaussianPrior) -> Certificate:
    """The certificate at the point x."""
    m, M = objective.unknowns, objective.measurements
    values = torch.linalg.svdvals(objective.linearise(x)[1])
    first = objective.observations[0]
    Phi = objective.update.jacobian(first.w, x, objective.y)[1]
    rank_unsketched = _rank(torch.linalg.svdvals(Phi))
    interior = int(((x > prior.lower + 1e-9) & (x < prior.upper - 1e-9)).sum())
    rounds = math.ceil(m / (M / len(objective.observations))) if rank_unsketched == m else None
    sigma_min = float(values[m - 1] / values[0].clamp(min=1e-300)) if len(values) >= m else 0.0
    return Certificate(
        unknowns=m,
        measurements=M,
        rank=_rank(values),
        sigma_min=sigma_min,
        rank_unsketched=rank_unsketched,
        rounds_to_identify=rounds,
        interior=interior,
        box_probability=box_probability(m, min(M, m), interior),
    )


def box_probability(m: int, b: int, k: int) -> float:
    """Chance that b generic measurements determine a point of [0,1]^m with k interior coordinates.

    1 - 2^{-(n-1)} Σ_{l<m-b} C(n-1, l) with n = m - k (Donoho and Tanner 2010, Theorem 1.1, by Wendel's formula);
    it passes 1/2 at b = (m + k)/2.
    """
    n, missing = m - k, m - b
    if missing <= 0:
        return 1.0
    if missing >= n:
        return 0.0
    logs = [gammaln(n) - gammaln(i + 1) - gammaln(n - i) - (n - 1) * math.log(2) for i in range(missing)]
    return float(-math.expm1(min(logsumexp(logs), 0.0)))


def cramer_rao(objective: Objective, x: Tensor) -> float:
    """tr((JᵀJ)⁻¹)/m at x: MSE of the best unbiased attacker; inf when JᵀJ is singular, 0 without noise."""
    values = torch.linalg.svdvals(objective.linearise(x)[1])
    if _rank(values) < objective.unknowns:
        return math.inf
    return float(values.square().reciprocal().mean()) if objective.noisy else 0.0


def bayesian_at(objective: Objective, x: Tensor, prior: GaussianPrior) -> float:
    """tr((JᵀJ + C⁻¹)⁻¹)/m at x; without noise the limit, the prior's variance on the null space of J."""
    J = objective.linearise(x)[1]
    return _posterior(J.T @ J, J, prior, noisy=objective.noisy)


def van_trees(objective: Objective, points: Tensor, prior: GaussianPrior) -> float:
    """tr((E[JᵀJ] + C⁻¹)⁻¹)/m with the expectation over ``points`` (n, m) drawn from the prior."""
    jacobians = [objective.linearise(x)[1] for x in points]
    information = torch.stack([J.T @ J for J in jacobians]).mean(0)
    return _posterior(information, torch.cat(jacobians), prior, noisy=objective.noisy)


def noise_for_ceiling(bound: Callable[[float], float], ceiling: float, *, prior: GaussianPrior) -> float | None:
    """The least noise std at which ``bound`` (std -> MSE, increasing) keeps PSNR at or under ``ceiling``.

    None when no noise can: guessing the public mean already does better than the ceiling.
    """
    wanted = mse_of(ceiling)
    if psnr(prior.variance) >= ceiling:
        return None
    low, high = 1e-12, 1e12
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if bound(middle) >= wanted else (middle, high)
    return high


def _rank(values: Tensor) -> int:
    return int((values > _RANK_TOLERANCE * values[0]).sum()) if len(values) and float(values[0]) > 0 else 0


def _posterior(information: Tensor, J: Tensor, prior: GaussianPrior, *, noisy: bool) -> float:
    m = information.shape[0]
    if noisy:
        return float(torch.cholesky_inverse(torch.linalg.cholesky(information + prior.precision)).trace()) / m
    A = J @ prior.factor  # posterior covariance L (I - A⁺A) Lᵀ: what the measurements leave of the prior
    _, values, Vh = torch.linalg.svd(A, full_matrices=False)
    rows = Vh[: _rank(values)]
    left = prior.factor - (prior.factor @ rows.T) @ rows
    return float(left.square().sum()) / m
