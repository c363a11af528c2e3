"""Pictures of an audit in numbers: PSNR over (compression x noise), and PSNR over rounds on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from desketch.attack.audit import attack_target
from desketch.attack.bounds import bayesian_at
from desketch.attack.noise import ObservedNoise
from desketch.attack.quality import psnr
from desketch.attack.scenario import Scenario

__all__ = ["Cell", "phase_diagram", "psnr_over_rounds"]

_RATIOS = (0.25, 0.5, 0.75, 1.1, 2.0, 4.0)  # measurements over unknowns
_NOISES = (0.0, 0.002, 0.02, 0.2)  # noise std per weight over |g|
_MOST_ROUNDS = 12


@dataclass(frozen=True)
class Cell:
    """One point: what was observed, the bound there, and what the attack got (best of the solvers) on one target."""

    b: int
    compression: float
    rounds: int
    relative_noise: float
    psnr_bound: float
    psnr_attack: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self.__dict__)


def phase_diagram(
    scenario: Scenario, *, ratios: Sequence[float] = _RATIOS, noises: Sequence[float] = _NOISES, seed: int = 0
) -> list[Cell]:
    """Bound and attack over a grid of message sizes and noise levels, for one target; raw updates have one size."""
    reference = scenario.target(seed)
    d, m, norm = reference.objective.update.d, reference.truth.numel(), reference.gradient_norm
    sketched = sorted({min(d, max(1, round(ratio * m / scenario.rounds))) for ratio in ratios})
    sizes = [None] if scenario.b is None else sketched
    return [
        _cell(replace(scenario, b=b, noise=ObservedNoise(before=z * norm)), z, seed, d) for b in sizes for z in noises
    ]


def psnr_over_rounds(scenario: Scenario, *, seed: int = 0) -> list[Cell]:
    """Bound and attack over the number of rounds seen, up to a fifth more measurements than unknowns."""
    reference = scenario.target(seed)
    d, m = reference.objective.update.d, reference.truth.numel()
    b = scenario.b or d
    last = min(max(3, -(-6 * m // (5 * b))), 64)
    stride = -(-last // _MOST_ROUNDS)
    z = scenario.noise.before / reference.gradient_norm
    return [_cell(replace(scenario, rounds=t), z, seed, d) for t in [1, *range(1 + stride, last + 1, stride)]]


def _cell(scenario: Scenario, relative_noise: float, seed: int, d: int) -> Cell:
    prior, target = scenario.prior(), scenario.target(seed)
    solvers = ("prior",) if scenario.noise else ("lm", "box", "prior")
    classes = None if scenario.labels_known else scenario.data.classes
    attempt = attack_target(target, prior, solvers, classes=classes, restarts=1, seed=seed)
    b = scenario.b or d
    return Cell(
        b=b,
        compression=d / b,
        rounds=scenario.rounds,
        relative_noise=relative_noise,
        psnr_bound=psnr(bayesian_at(target.objective, target.truth, prior)),
        psnr_attack=attempt.quality.psnr,
    )
