"""One method, one setting, one seed: train until the target is held, and keep its metric against bytes on the way.

Each evaluation looks at two models that every replica has for free, the last iterate and the mean of the last ten;
which of the two a method is judged by is chosen together with its setting, on the validation split.

The row of doing nothing is the method ``alone``: every client takes the same local steps from the same w0 on its own
model, no byte moves, and an evaluation is the mean of the metric over the clients' models (of ten, if there are more).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from torch import Tensor

from desketch import wire
from desketch.baselines.criterion import HOLD, Point, reach_and_hold
from desketch.baselines.methods import Method, Setting, Wiring
from desketch.core.flat import FlatModel
from desketch.core.metrics import METRICS, Metric
from desketch.errors import InputError
from desketch.fed.alone import followed, train_alone
from desketch.fed.client_momentum import ClientMomentum, client_beta
from desketch.fed.engine import Engine
from desketch.fed.iterates import Average, LastRounds
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.optimizers import make_optimizer
from desketch.fed.rounds import Attendance, Federation, Observer, RoundRecord, run
from desketch.fed.tensor_client import tensor_clients
from desketch.keys import Key

__all__ = ["AVERAGES", "SLACK", "Contest", "Limits", "Trial", "train"]

AVERAGES = (1, 10)
SLACK = 1.5  # what needs so many times the rounds or bytes of something else has lost against it
MOST_FOLLOWED = 10  # clients that train alone: each is evaluated by itself, which costs more than training it


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A federation without a method; everything random is a function of the seed."""

    name: str
    clients: Callable[[int], Sequence[ClientData]]
    engine: Callable[[int], Engine]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    evaluate: Callable[[FlatModel, Tensor, Tensor, Tensor], Mapping[str, float]]
    local_steps: int
    metric: Metric = METRICS["accuracy"]
    batch: int | None = 32
    fraction: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a run ends: the target is held, or the rounds or the bytes of one client are used up."""

    target: float
    rounds: int
    every: int = 5
    bytes: float = math.inf


@dataclass(frozen=True)
class Trial:
    """What a run gave: a curve per averaging window, and its cost."""

    method: str
    setting: Setting
    seed: int
    curves: Mapping[int, Sequence[Point]]
    seconds: float
    metric: str = "accuracy"

    def reached(self, target: float, average: int) -> Point | None:
        """Where this run holds the target, judged by the mean of the last ``average`` iterates."""
        return reach_and_hold(self.curves[average], target, metric=METRICS[self.metric])

    def row(self) -> dict[str, Any]:
        """The trial as JSON."""
        curves = {str(n): [asdict(point) for point in curve] for n, curve in self.curves.items()}
        return {
            "method": self.method,
            "setting": dict(self.setting),
            "seed": self.seed,
            "curves": curves,
            "seconds": self.seconds,
            "metric": self.metric,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Trial:
        """Rebuild from `row`."""
        curves = {int(n): tuple(_point(point) for point in curve) for n, curve in row["curves"].items()}
        return cls(row["method"], row["setting"], row["seed"], curves, row["seconds"], row.get("metric", "accuracy"))


def _point(stored: Mapping[str, Any]) -> Point:
    """A stored evaluation; files written when there was nothing but accuracy call the value so."""
    return Point(**{"value" if name == "accuracy" else name: value for name, value in stored.items()})


@dataclass
class _ByteCounter(Observer):
    """Bytes of one client on average, as counted by the rounds themselves.

    Any server may send w itself to whoever it asks, instead of what was missed: a round's downlink is never charged
    more than one f32 model per participant.  Without this, catching up would be held against the dense methods.
    """

    clients: int
    model_bytes: int
    up: float = 0.0
    down: float = 0.0

    def on_round(self, record: RoundRecord) -> None:
        """Add a round."""
        self.up += record.bytes_up / self.clients
        self.down += min(record.bytes_down, record.participants * self.model_bytes) / self.clients


def train(
    problem: Contest,
    method: Method,
    setting: Setting,
    *,
    seed: int,
    limits: Limits,
    split: tuple[Tensor, Tensor],
    averages: Sequence[int] = AVERAGES,
    progress: Callable[[int, float], None] = lambda t, value: None,
) -> Trial:
    """Run ``method`` until it holds the target on ``split``, in every averaging window, or reaches a limit.

    A window that takes `SLACK` times the rounds of another has lost and is not waited for.
    """
    started = time.process_time()
    clients, engine = problem.clients(seed), problem.engine(seed)
    counter = _ByteCounter(clients=len(clients), model_bytes=_dense_frame(engine.model.d))
    if method.channel is None:
        attendance = Attendance(fraction=problem.fraction, seed=seed)
        who = followed(len(clients), most=MOST_FOLLOWED)
        rounds = train_alone(clients, engine, _work(problem, setting, seed), attendance, who=who)
    else:
        rounds = _together(_federation(problem, method, setting, seed=seed, clients=clients, engine=engine), counter)
    windows: dict[int, list[Average]] = {n: [] for n in averages}
    curves: dict[int, list[Point]] = {n: [] for n in averages}
    for t, models in zip(range(1, limits.rounds + 1), rounds, strict=False):
        for n, window in windows.items():
            window += [LastRounds(n) for _ in range(len(models) - len(window))]
            for kept, w in zip(window, models, strict=True):
                kept.add(w)
        if t % limits.every:
            continue
        for n, window in windows.items():
            means = (kept.of(w) for kept, w in zip(window, models, strict=True))
            value = fmean(problem.evaluate(engine.model, w, *split)[problem.metric.name] for w in means)
            curves[n].append(Point(t, value, counter.up, counter.down))
        progress(t, problem.metric.best(*(curve[-1].value for curve in curves.values())))
        if _over(curves, limits, problem.metric):
            break
    return Trial(method.name, setting, seed, curves, time.process_time() - started, problem.metric.name)


def _together(federation: Federation, counter: _ByteCounter) -> Iterator[Sequence[Tensor]]:
    """The one model of a federation, round by round."""
    while True:
        run(federation, rounds=federation.t + 1, observer=counter)
        yield [federation.server.replica.w]


def _dense_frame(d: int) -> int:
    """Bytes of a frame that holds w in f32."""
    return wire.frame_size(wire.Header(run=0, round=1, family="none", d=d, b=d, key=Key(0), codec="f32"), agreed=1.0)


def _over(curves: Mapping[int, Sequence[Point]], limits: Limits, metric: Metric) -> bool:
    held = [reach_and_hold(curve, limits.target, metric=metric) for curve in curves.values()]
    first = min((point.round for point in held if point), default=math.inf)
    # the window that holds first is the cheapest here, another may be on the next seed: it is waited for, not for ever
    if all(held) or _settled(curves) >= SLACK * first:
        return True
    # a run that is past the byte limit by the evaluations that "hold" needs can no longer win
    late = [curve[-1 - HOLD].bytes > limits.bytes for curve in curves.values() if len(curve) > HOLD]
    return (bool(late) and all(late)) or not all(math.isfinite(c[-1].value) for c in curves.values())


def _settled(curves: Mapping[int, Sequence[Point]]) -> float:
    """The last round of which it is known whether the target was held from there."""
    return max((curve[-1 - HOLD].round for curve in curves.values() if len(curve) > HOLD), default=-math.inf)


def _work(problem: Contest, setting: Setting, seed: int) -> LocalWork:
    return LocalWork(steps=problem.local_steps, eta=setting["eta_local"], batch=problem.batch, seed=seed)


def _federation(
    problem: Contest, method: Method, setting: Setting, *, seed: int, clients: Sequence[ClientData], engine: Engine
) -> Federation:
    if method.channel is None:
        raise InputError(f"{method.name} sends nothing: it has no federation")
    model = engine.model
    work = _work(problem, setting, seed)
    beta = client_beta(
        setting.get("client_momentum", 0.0),
        local_steps=problem.local_steps,
        fraction=problem.fraction,
        numbers=len(clients) * model.d,
    )
    wiring = Wiring(
        shapes=tuple(model.shapes),
        d=model.d,
        key=Key(seed).fold_in("compare", method.name),
        client_momentum=beta,
        agreed={client.client: client.weight for client in clients},
        local_steps=problem.local_steps,
    )
    channel = method.channel(wiring, setting)
    recruit = method.recruit
    return Federation(
        clients=recruit(channel, clients, model, work) if recruit else tensor_clients(clients, engine, work),
        channel=channel,
        optimizer=make_optimizer(setting["optimizer"], eta_global=setting["eta_global"], client_momentum=beta),
        memory=ClientMomentum(beta) if beta else None,
        w0=model.flatten(),
        attendance=Attendance(fraction=problem.fraction, seed=seed),
    )
