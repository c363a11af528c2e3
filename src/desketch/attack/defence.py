"""The way out: how much noise keeps every attacker with this prior under a PSNR ceiling, and what epsilon that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from desketch.attack.bounds import noise_for_ceiling
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.prior import GaussianPrior
from desketch.attack.scenario import Scenario, Target
from desketch.privacy.accountants import epsilon
from desketch.privacy.events import Gaussian, Ledger

__all__ = ["defence", "epsilon_of", "needed_noise"]


def needed_noise(target: Target, prior: GaussianPrior, ceiling: float) -> float | None:
    """The std per weight before the sketch at which the Bayesian bound of this target falls to ``ceiling`` dB."""
    objective = target.objective
    loud = [Observation(o.w, o.R, o.s, ObservedNoise(before=1.0)) for o in objective.observations]
    J = Objective(objective.update, loud, objective.y).linearise(target.truth)[1] @ prior.factor
    values, vectors = torch.linalg.eigh(J.T @ J)
    weights = (prior.factor @ vectors).square().sum(0)  # posterior variance: Σ weight / (1 + value / std²)

    def bound(std: float) -> float:
        return float((weights / (1 + values.clamp(min=0) / std**2)).sum()) / target.truth.numel()

    return noise_for_ceiling(bound, ceiling, prior=prior)


def epsilon_of(scenario: Scenario, noise_std: float, *, clip: float, delta: float) -> float:
    """Epsilon (example level, add-remove, no subsampling) of ``rounds`` messages with this noise on every update.

    ``noise_std`` sits on the update.  Spread over K local steps of size eta_local it is noise_std/(eta_local √K) on
    each gradient, whose mean over the batch moves by clip/batch when one example comes or goes.
    """
    eta = 1.0 if scenario.eta_local is None else scenario.eta_local
    per_step = noise_std / (eta * scenario.K**0.5)
    z = per_step * scenario.batch / clip
    ledger = Ledger("example").plus(Gaussian(z), count=scenario.rounds * scenario.K)
    return epsilon(ledger, delta)


def defence(
    scenario: Scenario, targets: Sequence[Target], prior: GaussianPrior, *, ceiling: float, delta: float | None
) -> dict[str, Any]:
    """The noise that the worst target needs, its epsilon when a delta is given, and the epsilon of the noise now."""
    clip = scenario.clip or max(t.gradient_norm for t in targets)
    stds = [std for std in (needed_noise(t, prior, ceiling) for t in targets) if std is not None]
    answer: dict[str, Any] = {"ceiling_psnr": ceiling, "clip": clip, "delta": delta, "noise_std": None, "epsilon": None}
    answer["clip_is"] = "the scenario's" if scenario.clip else "assumed: the largest update among the targets"
    if not stds:
        return answer | {"note": "no noise can: guessing the public mean already beats the ceiling"}
    answer |= {"noise_std": max(stds), "relative_noise": max(stds) / max(t.gradient_norm for t in targets)}
    if delta is None:
        return answer | {"note": "give --delta for the epsilon of this noise; there is no default"}
    answer["epsilon"] = epsilon_of(scenario, max(stds), clip=clip, delta=delta)
    if scenario.noise.before > 0:
        answer["epsilon_now"] = epsilon_of(scenario, scenario.noise.before, clip=clip, delta=delta)
    return answer | {"note": "std per weight before the sketch; holds for attackers who know no more than the prior"}
