"""Compare: tune every method alike on the validation split, then measure each on the test set over several seeds.

Tuning runs seeds of its own through each setting of the method's grid and keeps the setting, and the averaging window,
with which the target is held on the validation split on all of them, and a client sends and receives the fewest bytes
in the mean.  One seed would not do: a run is chaotic, and the luck of a single one picks other settings on another
machine.  A run is cut, and its setting given up, once it has spent half as much again as the best setting so far in the
mean.  Then every seed runs with the setting that was kept and is judged on the full test set.  All methods see the same
partitions, initial weights and local batches, seed by seed.

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
from desketch.baselines.trial import AVERAGES, SLACK, Contest, Limits, Trial, train
from desketch.core.metrics import METRICS, Metric

__all__ = ["TUNING_SEEDS", "Choice", "Interval", "Progress", "Result", "measure", "ratio", "tune"]

TUNING_SEEDS = (0, 100, 101)

Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Choice:
    """What a method is measured with; ``runs`` says how many runs it took to find it, on how many ``seeds``.

    ``rounds`` is when it held the target in tuning, in the mean; None if it did not on every seed, or not as soon as it
    had to.
    """

    setting: Setting
    average: int
    runs: int
    rounds: float | None = None
    seeds: int = 0


@dataclass(frozen=True)
class _Entry:
    """A setting judged by one window: on how many tuning seeds it held the target, and at what cost in the mean."""

    setting: Setting
    average: int
    held: int
    bytes: float
    rounds: float
    ended: float  # the metric of the first seed's last evaluation


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
            "tuning_seeds": self.choice.seeds,
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
    seeds: Sequence[int] = TUNING_SEEDS,
    sooner_than: float | None = None,
    progress: Progress = lambda *_: None,
) -> Choice:
    """The setting and window of the grid that hold the target on the validation split with the fewest bytes.

    With ``sooner_than``, only runs that hold it in fewer rounds count; where no setting's do, all of them do.
    """
    limits = _in_time(limits, sooner_than)
    soon: list[_Entry] = []
    tried: list[_Entry] = []
    runs = 0
    for setting in method.grid:
        limit, trials = _lost(limits, _best(soon, len(seeds))), list[Trial]()
        for seed in seeds:
            trials.append(_trial(problem, method, setting, seed, limit, "validation", AVERAGES, store, progress))
            if not any(_held(trials[-1:], limits.target, n, sooner_than) for n in AVERAGES):
                break
        runs += len(trials)
        soon += [_entry(trials, limits.target, n, sooner_than) for n in AVERAGES]
        tried += [_entry(trials, limits.target, n, None) for n in AVERAGES]
    best = _best(soon, len(seeds))
    if best:
        return Choice(best.setting, best.average, runs, best.rounds, len(seeds))
    partly = [entry for entry in tried if entry.held]
    if partly:
        kept = min(partly, key=lambda entry: (-entry.held, *_price(entry)))
    else:
        kept = max(tried, key=lambda entry: entry.ended if problem.metric.higher else -entry.ended)
    return Choice(kept.setting, kept.average, runs, None, len(seeds))


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


def _in_time(limits: Limits, sooner_than: float | None) -> Limits:
    """Until the last evaluation that is soon enough, and those that show whether it holds."""
    if sooner_than is None:
        return limits
    return replace(
        limits, rounds=min(limits.rounds, ((math.ceil(sooner_than) - 1) // limits.every + HOLD) * limits.every)
    )


def _lost(limits: Limits, best: _Entry | None) -> Limits:
    """When a run has lost against the best setting so far; where that sends nothing, there are only rounds to save."""
    if best is None:
        return limits
    return replace(limits, bytes=SLACK * best.bytes) if best.bytes else _in_time(limits, SLACK * best.rounds)


def _held(trials: Sequence[Trial], target: float, n: int, sooner_than: float | None) -> list[Point]:
    """Where the trials, judged by the window n, hold the target, those that do it soon enough."""
    reached = [trial.reached(target, n) for trial in trials]
    latest = math.inf if sooner_than is None else sooner_than
    return [point for point in reached if point and point.round < latest]


def _entry(trials: Sequence[Trial], target: float, n: int, sooner_than: float | None) -> _Entry:
    points = _held(trials, target, n, sooner_than)
    spent = mean(point.bytes for point in points) if points else math.inf
    rounds = mean(float(point.round) for point in points) if points else math.inf
    return _Entry(trials[0].setting, n, len(points), spent, rounds, trials[0].curves[n][-1].value)


def _best(entries: Sequence[_Entry], seeds: int) -> _Entry | None:
    """The cheapest of those that hold on every seed."""
    return min((entry for entry in entries if entry.held == seeds), key=_price, default=None)


def _price(entry: _Entry) -> tuple[float, float]:
    return entry.bytes, entry.rounds


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
