"""The constants behind a plan: flags, over estimates from a run folder or a model and task; each says its origin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from desketch.errors import InputError

__all__ = ["PlanConstants", "gather"]

_FLAGS = {"d": "--params", "N": "--clients", "L": "--smoothness", "distance": "--distance", "eps": "--target-error"}
_DEFAULTS: dict[str, Any] = {
    "distance": 0.0,
    "gap": None,
    "sigma_star": 0.0,
    "zeta": None,
    "G": None,
    "trace_ratio": None,
    "gradient_noise": 0.0,
}
_SHARE = 0.1  # the target error when none is given: this share of where the run starts


@dataclass(frozen=True)
class PlanConstants:
    """Every constant by name, and how each that was not given was found."""

    values: dict[str, Any]
    origins: dict[str, str]


def gather(
    given: dict[str, Any], *, convex: bool, run: Path | None, settings: dict[str, Any], full_gradient: bool
) -> PlanConstants:
    """Flags win over estimates; what neither gives and no theorem can do without is asked for."""
    flags = {name: value for name, value in given.items() if value is not None}
    estimates, how = _estimate(run, settings)
    origins = {name: text for name, text in how.items() if name not in flags}
    if full_gradient:
        estimates["gradient_noise"] = 0.0
        origins.pop("gradient_noise", None)
    values = _DEFAULTS | estimates | flags
    if not convex and "zeta" not in flags | estimates and "sigma_star" in flags:
        values["zeta"] = flags["sigma_star"]  # without convexity heterogeneity means: at every w
    if convex and "zeta" not in flags:
        values["zeta"] = None  # an estimate at two points is not a bound, and the convex theorems do without
        origins.pop("zeta", None)
    if "eps" not in values and estimates:
        start = values["gap"] if convex else estimates["gradient_square"]
        values["eps"] = _SHARE * start
        origins["eps"] = f"{_SHARE:.0%} of {'f - f*' if convex else '|grad f|²'} at the start, as none was given"
    _demand_complete(values, flags | estimates, convex=convex)
    return PlanConstants(values, {name: text for name, text in origins.items() if values.get(name) is not None})


def _estimate(run: Path | None, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Only here torch is imported."""
    settings = {name: value for name, value in settings.items() if value is not None}
    if run is not None and settings:
        raise InputError("--from-run has its own model, task and partition; give it or them, not both")
    if run is None and not settings:
        return {}, {}
    from desketch.tasks import RunConfig
    from desketch.tasks.curvature import HOW
    from desketch.tasks.run_constants import WARM_STEPS, estimate_config, estimate_run

    found = estimate_run(run) if run is not None else estimate_config(RunConfig(**settings))
    end = "the run's last weights" if run is not None else f"w after {WARM_STEPS} steps of descent"
    how = {name: text.replace("the end", f"the end ({end})", 1) for name, text in HOW.items()}
    return asdict(found), how


def _demand_complete(values: dict[str, Any], known: dict[str, Any], *, convex: bool) -> None:
    missing = [_FLAGS[name] for name in ("d", "N", "L", "eps") if name not in values]
    if "distance" not in known and (convex or "gap" not in known):
        missing.append("--distance" if convex else "--distance (or --gap)")
    if missing:
        raise InputError(
            f"a plan needs {', '.join(missing)}; give the flags, or --from-run RUN, or --model and --task, to estimate"
        )
