"""What a target costs in bytes: every method tuned with one budget on one federation, then measured over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from desketch.baselines.compare import TUNING_SEEDS, Choice, Interval, Progress, Result, measure, ratio, tune
from desketch.baselines.methods import METHODS, Method
from desketch.baselines.store import TrialStore
from desketch.baselines.trial import Contest, Limits
from desketch.core.flat import FlatModel
from desketch.errors import ConfigError
from desketch.fed.engine import Engine
from desketch.fed.engines import make_engine
from desketch.fed.local import ClientData
from desketch.tasks import Task, build_model, partition

__all__ = ["compare_methods", "make_problem", "summary"]


def make_problem(
    task: Task, *, model: str, clients: int, split: str, fraction: float, local_steps: int, batch: int = 32
) -> Contest:
    """A federation on a task, waiting for a method; partition, weights and batches are functions of the seed."""

    @lru_cache(maxsize=1)
    def data(seed: int) -> Sequence[ClientData]:
        parts = partition(task, split, clients, seed)
        return [ClientData(c, task.x_train[index], task.y_train[index]) for c, index in enumerate(parts)]

    def engine(seed: int) -> Engine:
        flat = FlatModel(build_model(model, task, seed=seed), task.goal.loss)
        return make_engine(flat, (task.x_val[:2], task.y_val[:2]))

    return Contest(
        name=f"{Path(task.name).name} {model} N={clients} {split} C={fraction:g} K={local_steps} B={batch}",
        clients=data,
        engine=engine,
        validation=(task.x_val, task.y_val),
        test=(task.x_test, task.y_test),
        evaluate=task.goal.evaluate,
        metric=task.goal.metric,
        local_steps=local_steps,
        batch=batch,
        fraction=fraction,
    )


def compare_methods(
    problem: Contest,
    methods: Sequence[Method],
    *,
    seeds: int,
    limits: Limits,
    store: TrialStore,
    untuned: Sequence[str] = (),
    sooner: bool = False,
    alone: float | None = None,
    tuning_seeds: Sequence[int] = TUNING_SEEDS,
    progress: Progress = lambda *_: None,
) -> list[Result]:
    """Tune and measure each method; those in ``untuned`` keep their defaults.

    With ``sooner`` a method is tuned to the fewest bytes with which it holds the target sooner than clients alone do;
    where those never hold it, to the fewest bytes.  ``alone`` is the round in which they do, where it is known already.
    """
    if sooner and untuned:
        raise ConfigError(
            f"sooner chooses among settings and {', '.join(untuned)} shall keep the default; leave out one of the two"
        )
    results = []
    if sooner and alone is None:
        alone = tune(
            problem, METHODS["alone"], limits=limits, store=store, seeds=tuning_seeds, progress=progress
        ).rounds
    for place, method in enumerate(methods, start=1):
        tell = _numbered(progress, f"{place}/{len(methods)} ")
        if method.name in untuned:
            choice = Choice(method.untuned, method.average, 0)
        else:
            bound = None if method.channel is None or not sooner else alone
            choice = tune(
                problem, method, limits=limits, store=store, seeds=tuning_seeds, sooner_than=bound, progress=tell
            )
        results.append(
            measure(problem, method, choice, seeds=range(1, seeds + 1), limits=limits, store=store, progress=tell)
        )
    return results


def _numbered(progress: Progress, place: str) -> Progress:
    return lambda label, t, value: progress(place + label, t, value)


def summary(
    problem: Contest, rows: Sequence[dict[str, Any]], *, limits: Limits, sooner: bool = False
) -> dict[str, Any]:
    """One JSON object: a row per method, and how many times fewer bytes desketch needs than each of the others."""
    costs = {row["method"]: row["bytes_by_seed"] for row in rows}
    ours = costs.pop("desketch", [])
    ratios = {name: _interval(ratio(theirs, ours)) for name, theirs in costs.items()}
    return {
        "problem": problem.name,
        "metric": problem.metric.name,
        "target": limits.target,
        "criterion": "first evaluation at the target whose next three have their median there",
        "tuned_for": "the fewest bytes"
        + (" with which the target is held sooner than by clients alone" if sooner else ""),
        "evaluated_every": limits.every,
        "max_rounds": limits.rounds,
        "interval": "geometric mean over seeds, 95% Student interval on the log scale; ratios are paired by seed",
        "methods": list(rows),
        "times_fewer_bytes": ratios,
    }


def _interval(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    wide = interval.high == float("inf")
    return {"mean": interval.mean, "low": None if wide else interval.low, "high": None if wide else interval.high}
