"""The leakage audit: certificate, bounds, attacks that really run, and a verdict in a few words.

* ``recovered``: an attack rebuilt at least half of the targets.
* ``identifiable but attack failed (not safe)``: the message determines x; a better optimiser will find it.
* ``noise-limited``: the message would determine x, but the noise keeps every attacker with this prior above the error.
* ``not identifiable``: fewer independent measurements than unknowns, and neither box nor prior made up for it.

"Not identifiable" protects one message, not a run: fresh R_t on the same data add up (`rounds_to_identify`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from torch import Tensor

from desketch.attack.bounds import Certificate, bayesian_at, certify, cramer_rao
from desketch.attack.defence import defence
from desketch.attack.optimise import build_solver, reconstruct
from desketch.attack.prior import GaussianPrior
from desketch.attack.quality import Quality, psnr, quality
from desketch.attack.scenario import Scenario, Target
from desketch.errors import InputError

__all__ = ["VERDICTS", "Attempt", "AuditReport", "attack_target", "audit", "wilson"]

VERDICTS = (
    "recovered",
    "identifiable but attack failed (not safe)",
    "noise-limited",
    "not identifiable",
)

_SUCCESS_MSE = 1e-4
_Z95 = 1.959963984540054

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Attempt:
    """The best reconstruction of one target over the solvers tried."""

    seed: int
    solver: str
    quality: Quality
    labels_right: bool
    loss: float
    seconds: float
    truth: Tensor = field(repr=False)
    reconstruction: Tensor = field(repr=False)

    @property
    def success(self) -> bool:
        """MSE below 1e-4, that is PSNR above 40 dB."""
        return self.quality.mse < _SUCCESS_MSE


@dataclass(frozen=True)
class AuditReport:
    """Everything an audit found; `as_dict` is the JSON document."""

    verdict: str
    threat_model: dict[str, Any]
    certificate: Certificate
    sigma_mins: tuple[float, ...]
    attempts: tuple[Attempt, ...]
    psnr_bound: float
    psnr_cramer_rao: float | None
    psnr_prior: float
    defence: dict[str, Any]
    seconds: float

    @property
    def successes(self) -> int:
        """Targets recovered."""
        return sum(a.success for a in self.attempts)

    @property
    def psnr_median(self) -> float:
        """Median over the targets of the best attack's PSNR."""
        return median(a.quality.psnr for a in self.attempts)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        n = len(self.attempts)
        c = self.certificate
        return {
            "verdict": self.verdict,
            "unknowns": c.unknowns,
            "measurements": c.measurements,
            "rank": c.rank,
            "sigma_min": median(self.sigma_mins),
            "sigma_min_worst": min(self.sigma_mins),
            "identifiable": c.identifiable,
            "rounds_to_identify": c.rounds_to_identify,
            "interior_unknowns": c.interior,
            "box_probability": c.box_probability,
            "success_rate": self.successes / n,
            "wilson": list(wilson(self.successes, n)),
            "seeds": n,
            "psnr_median": self.psnr_median,
            "ssim_median": median(a.quality.ssim for a in self.attempts),
            "psnr_bound": self.psnr_bound,
            "psnr_cramer_rao": self.psnr_cramer_rao,
            "psnr_prior": self.psnr_prior,
            "gap_to_bound_db": self.psnr_bound - self.psnr_median,
            "labels_recovered": sum(a.labels_right for a in self.attempts) / n,
            "threat_model": self.threat_model,
            "defence": self.defence,
            "attempts": [_row(a) for a in self.attempts],
            "seconds": self.seconds,
        }


def audit(
    scenario: Scenario,
    *,
    seeds: int = 10,
    solvers: Sequence[str] = ("lm", "box", "prior"),
    restarts: int = 3,
    ceiling: float = 20.0,
    delta: float | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack ``seeds`` simulated leaks of the scenario with every solver until one succeeds, and judge."""
    began = time.perf_counter()
    prior, tell = scenario.prior(), progress or (lambda text: None)
    certificates, bounds, limits, attempts, targets = [], [], [], [], []
    for seed in range(seeds):
        place = f"{seed + 1}/{seeds} messages"
        tell(f"{place}: what it determines")
        target = scenario.target(seed)
        certificates.append(certify(target.objective, target.truth, prior))
        bounds.append(bayesian_at(target.objective, target.truth, prior))
        limits.append(cramer_rao(target.objective, target.truth))
        targets.append(target)
        classes = None if scenario.labels_known else scenario.data.classes
        step = partial(_tell_step, tell, place)
        attempts.append(
            attack_target(target, prior, solvers, classes=classes, restarts=restarts, seed=seed, progress=step)
        )
        tell(f"{place}: {attempts[-1].quality.psnr:.1f} dB by {attempts[-1].solver}")
    tell("the noise that would hide it")
    middle = sorted(certificates, key=lambda c: (c.rank, c.sigma_min))[(seeds - 1) // 2]
    bound = psnr(sum(bounds) / seeds)
    limit = median(limits)
    return AuditReport(
        verdict=_verdict(attempts, middle, bound),
        threat_model=_threat_model(scenario),
        certificate=middle,
        sigma_mins=tuple(c.sigma_min for c in certificates),
        attempts=tuple(attempts),
        psnr_bound=bound,
        psnr_cramer_rao=psnr(limit) if math.isfinite(limit) else None,
        psnr_prior=psnr(prior.variance),
        defence=defence(scenario, targets, prior, ceiling=ceiling, delta=delta),
        seconds=time.perf_counter() - began,
    )


def _tell_step(tell: Progress, place: str, iteration: int, loss: float) -> None:
    tell(f"{place}: attacked, iteration {iteration}, loss {loss:.1e}")


def attack_target(
    target: Target,
    prior: GaussianPrior,
    solvers: Sequence[str],
    *,
    classes: int | None,
    restarts: int = 3,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Attempt:
    """Try the solvers in turn until the truth is met; return the best try (the auditor knows the truth)."""
    update, best, began = target.objective.update, None, time.perf_counter()
    n = update.examples
    truth = target.truth.reshape(n, *update.shape)
    for name in solvers:
        found = reconstruct(
            target.objective,
            build_solver(name, prior),
            prior,
            classes=classes,
            restarts=restarts,
            seed=seed,
            progress=progress,
        )
        x = found.x.reshape(n, *update.shape).clamp(prior.lower, prior.upper)
        right = sorted(found.y.tolist()) == sorted(target.objective.y.tolist())
        score = quality(x, truth)
        if best is None or score.mse < best.quality.mse:
            best = Attempt(seed, name, score, right, found.loss, 0.0, truth, x)
        if best.success:
            break
    if best is None:
        raise InputError("an attack needs at least one solver")
    return replace(best, seconds=time.perf_counter() - began)


def wilson(successes: int, n: int, z: float = _Z95) -> tuple[float, float]:
    """The Wilson 95 % interval of a success rate."""
    p, zz = successes / n, z * z / n
    centre, half = p + zz / 2, z * math.sqrt(p * (1 - p) / n + zz / (4 * n))
    return max(0.0, (centre - half) / (1 + zz)), min(1.0, (centre + half) / (1 + zz))


def _verdict(attempts: Sequence[Attempt], certificate: Certificate, bound: float) -> str:
    if 2 * sum(a.success for a in attempts) >= len(attempts):
        return VERDICTS[0]
    if not certificate.identifiable:
        return VERDICTS[3]
    return VERDICTS[2] if bound < psnr(_SUCCESS_MSE) else VERDICTS[1]


def _threat_model(s: Scenario) -> dict[str, Any]:
    return {
        "knows": "weights, public key (so every R_t), model, loss, K, eta_local, clip and noise level",
        "does_not_know": "the private inputs" + ("" if s.labels_known else " and their labels"),
        "sees": f"{s.rounds} message(s) of {s.b or 'd'} numbers: {s.family if s.b else 'raw'}, {s.codec or 'exact'}",
        "prior": f"mean, covariance and range of {len(s.data.public_y)} public examples",
        "examples_per_message": s.batch * s.clients,
        "local_steps": s.K,
        "noise": asdict(s.noise),
        "success": "MSE < 1e-4 (40 dB) by the best of the attacks, judged against the truth",
    }


def _row(a: Attempt) -> dict[str, Any]:
    row = {"seed": a.seed, "solver": a.solver, **asdict(a.quality)}
    return row | {"success": a.success, "labels_right": a.labels_right, "loss": a.loss, "seconds": a.seconds}
