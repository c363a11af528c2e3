"""Compare: tune every method alike on the validation split, then measure each on the test set over several seeds.

Tuning runs one seed of its own through each setting of the method's grid and keeps the setting, and the averaging
window, with which a client sends and receives the fewest bytes until the target is held on the validation split.  A run
is cut once its bytes exceed the best setting so far: it can no longer win.  Then every seed runs with that setting and
is judged on the full test set.  All methods see the same partitions, initial weights and local batches, seed by seed.

Where clients alone hold the target too, they do it with no byte at all: a setting that takes as many rounds is behind
them in everything.  With ``sooner_than``, the rounds of a client alone on the validation split, such settings do not
count, whatever the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev
from typing import Any

from scipy import stats

from desketch.baselines.criterion import HOLD, Point
from desketch.baselines.methods import Method, Setting
from desketch.baselines.store import TrialStore
from desketch.baselines.trial import AVERAGES, Contest, Limits, Trial, train
from desketch.core.metrics import METRICS, Metric

__all__ = ["TUNING_SEED", "Choice", "Interval", "Progress", "Result", "measure", "ratio", "tune"]

TUNING_SEED = 0

Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Choice:
    """What a method is measured with; ``runs`` says how many settings were tried to find it.

    ``rounds`` is when it held the target in tuning; None if it did not, or not sooner than it had to.
    """

    setting: Setting
    average: int
    runs: int
    rounds: int | None = None


@dataclass(frozen=True)
class Interval:
    """A geometric mean over seeds and its 95% Student interval on the log scale."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval | None:
        """The interval of positive values; None without any, infinitely wide with one; 0 where all are 0."""
        if not values:
            return None
        if not any(values):
            return cls(0.0, 0.0, 0.0)
        logs = [math.log(value) for value in values]
        centre = mean(logs)
        if len(logs) == 1:
            return cls(math.exp(centre), 0.0, math.inf)
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
        return cls(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


@dataclass(frozen=True)
class Result:
    """A method's measured trials, one per seed, with the setting it was given."""

    method: Method
    choice: Choice
    target: float
    trials: Sequence[Trial]

    @property
    def metric(self) -> Metric:
        """What the trials were judged by."""
        return METRICS[self.trials[0].metric]

    def row(self) -> dict[str, Any]:
        """The result as one JSON object."""
        points = [trial.reached(self.target, self.choice.average) for trial in self.trials]
        held = [point for point in points if point]
        interval = Interval.of([point.bytes for point in held])
        rounds = [point.round for point in held]
        last = [trial.curves[self.choice.average][-1].value for trial in self.trials]
        return {
            "method": self.method.name,
            "what": self.method.what,
            "setting": dict(self.choice.setting),
            "average_last": self.choice.average,
            "tuning_runs": self.choice.runs,
            "tuning_rounds": self.choice.rounds,
            "seeds": len(points),
            "reached": len(held),
            "bytes": interval.mean if interval else None,
            "bytes_low": interval.low if interval else None,
            "bytes_high": interval.high if interval and interval.high < math.inf else None,
            "bytes_up": mean(point.bytes_up for point in held) if held else None,
            "bytes_down": mean(point.bytes_down for point in held) if held else None,
            "rounds": median(rounds) if rounds else None,
            "rounds_by_seed": [point.round if point else None for point in points],
            "bytes_by_seed": [point.bytes if point else None for point in points],
            f"last_{self.metric.name}": mean(last),
            "cpu_seconds": sum(trial.seconds for trial in self.trials),
        }


def tune(
    problem: Contest,
    method: Method,
    *,
    limits: Limits,
    store: TrialStore,
    sooner_than: int | None = None,
    progress: Progress = lambda *_: None,
) -> Choice:
    """The setting and window of the grid that hold the target on the validation split with the fewest bytes.

    With ``sooner_than``, only those that hold it in fewer rounds count; where there is none, all of them do.
    """
    limits = _in_time(limits, sooner_than)
    trials: list[Trial] = []
    for setting in method.grid:
        best = min((point for point, *_ in _held(trials, limits.target, sooner_than)), key=_price, default=None)
        limit = replace(limits, bytes=best.bytes) if best else limits
        if best and best.bytes == 0:  # nothing to be saved but rounds
            limit = _in_time(limits, best.round)
        trials.append(_trial(problem, method, setting, TUNING_SEED, limit, "validation", AVERAGES, store, progress))
    soon = _held(trials, limits.target, sooner_than)
    held = soon or _held(trials, limits.target, None)
    if held:
        point, trial, average = min(held, key=lambda item: _price(item[0]))
        return Choice(trial.setting, average, len(trials), point.round if soon else None)
    better = 1 if problem.metric.higher else -1
    trial, average = max(
        ((t, n) for t in trials for n in AVERAGES), key=lambda item: better * item[0].curves[item[1]][-1].value
    )
    return Choice(trial.setting, average, len(trials))


def measure(
    problem: Contest,
    method: Method,
    choice: Choice,
    *,
    seeds: Iterable[int],
    limits: Limits,
    store: TrialStore,
    progress: Progress = lambda *_: None,
) -> Result:
    """The method with its chosen setting on the test set, seed by seed."""
    trials = [
        _trial(problem, method, choice.setting, seed, limits, "test", (choice.average,), store, progress)
        for seed in seeds
    ]
    return Result(method, choice, limits.target, trials)


def ratio(theirs: Sequence[float | None], ours: Sequence[float | None]) -> Interval | None:
    """How many times fewer bytes ``ours`` needs, paired by seed; seeds that one of them lacks are left out."""
    return Interval.of([a / b for a, b in zip(theirs, ours, strict=False) if a and b])


def _in_time(limits: Limits, sooner_than: int | None) -> Limits:
    """Until the last evaluation that is soon enough, and those that show whether it holds."""
    if sooner_than is None:
        return limits
    return replace(limits, rounds=min(limits.rounds, ((sooner_than - 1) // limits.every + HOLD) * limits.every))


def _price(point: Point) -> tuple[float, int]:
    return point.bytes, point.round


def _held(trials: Sequence[Trial], target: float, sooner_than: int | None) -> list[tuple[Point, Trial, int]]:
    """Where a trial, judged by a window, holds the target, and soon enough."""
    reached = [(trial.reached(target, n), trial, n) for trial in trials for n in AVERAGES]
    latest = math.inf if sooner_than is None else sooner_than
    return [(point, trial, n) for point, trial, n in reached if point and point.round < latest]


def _trial(
    problem: Contest,
    method: Method,
    setting: Setting,
    seed: int,
    limits: Limits,
    split: str,
    averages: Sequence[int],
    store: TrialStore,
    progress: Progress,
) -> Trial:
    what = {
        "problem": problem.name,
        "method": method.name,
        "setting": setting,
        "seed": seed,
        "target": limits.target,
        "rounds": limits.rounds,
        "every": limits.every,
        "split": split,
        "averages": list(averages),
    }
    stored = store.get(**what)
    if stored:
        return stored
    data = {"validation": problem.validation, "test": problem.test}[split]
    label = f"{method.name} {split} seed {seed}"
    trial = train(
        problem,
        method,
        setting,
        seed=seed,
        limits=limits,
        split=data,
        averages=averages,
        progress=lambda t, a: progress(label, t, a),
    )
    store.put(trial, **what)
    return trial
