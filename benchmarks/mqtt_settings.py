"""Validation accuracy, round by round, of the thin-wire federation: which b, client momentum and average to use.

``python benchmarks/mqtt_settings.py --data idx:FOLDER`` fills the part "search" of ``benchmarks/results/mqtt.json``
case by case, in process, and skips those already there.  A tenth of the training set is kept for validation; the test
set is not looked at.  ``averages`` are of one run: the mean of the last n weights is evaluated, training is the same.
"""

from __future__ import annotations

import argparse
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from desketch.fed import run
from desketch.fed.iterates import make_average
from desketch.fed.rounds import Observer, RoundRecord
from desketch.tasks import prepare
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup
from desketch.tasks.parties import ConfiguredTrainer
from mqtt_links import SIGN, results, write
from thin_wire import SETTINGS

ROUNDS, VALIDATION = 20, 0.1
AVERAGES, SEEDS = (1, 3, 10), (0, 1, 2)
CASES = [(compression, beta) for compression in (30.0, 60.0, 120.0, 240.0) for beta in (0.8, 0.0)]


class Followed:
    """Validation accuracy after each round, for every average."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._averages = {n: make_average(n, d=setup.model.d) for n in AVERAGES}
        self.found: dict[int, list[float]] = {n: [] for n in AVERAGES}

    def add(self, w: Tensor) -> None:
        """Take in w^t."""
        task = self._setup.task
        for n, average in self._averages.items():
            average.add(w)
            metrics = task.goal.evaluate(self._setup.model, average.of(w), task.x_val, task.y_val)
            self.found[n].append(round(metrics["accuracy"], 4))


def prepared(seed: int, data: str, **settings: Any) -> Setup:
    """The thin-wire federation with a validation set."""
    common: dict[str, Any] = {"rounds": ROUNDS, "validation": VALIDATION, "evaluate_every": ROUNDS, "seed": seed}
    return prepare(RunConfig(task=data, **{**SETTINGS, **SIGN, **common, **settings}))


def together(seed: int, data: str, compression: float, beta: float) -> dict[int, list[float]]:
    """One run of all clients."""
    setup = prepared(seed, data, compression=compression, client_momentum=beta)
    federation, followed = setup.federation(), Followed(setup)

    class Watch(Observer):
        def on_round(self, record: RoundRecord) -> None:
            followed.add(federation.server.replica.w)

    run(federation, rounds=ROUNDS, observer=Watch())
    return followed.found


def alone(seed: int, data: str) -> dict[int, list[float]]:
    """Client 0 and nobody else: the same steps on its own data, and no bytes."""
    setup = prepared(seed, data)
    participant, w, followed = ConfiguredTrainer(setup, 0).participant, setup.model.flatten(), Followed(setup)
    for t in range(1, ROUNDS + 1):
        w = w + participant.update(w, t)[0]
        followed.add(w)
    return followed.found


def means(runs: list[dict[int, list[float]]]) -> dict[str, Any]:
    """The means over the seeds."""
    by = {str(n): [round(mean(at), 4) for at in zip(*(one[n] for one in runs), strict=True)] for n in AVERAGES}
    return {"seeds": len(runs), "averages": by}


def main() -> None:
    """Fill the missing cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Fashion-MNIST as idx:FOLDER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for compression, beta in CASES:
        name = f"{compression:g}x, client momentum {beta:g}"
        if name not in results().get("search", {}):
            runs = [together(seed, args.data, compression, beta) for seed in SEEDS]
            keep(name, {"compression": compression, "client_momentum": beta, **means(runs)})
    if "alone" not in results()["search"]:
        keep("alone", means([alone(seed, args.data) for seed in SEEDS]))


def keep(name: str, outcome: dict[str, Any]) -> None:
    """Add a case to the document."""
    document = results()
    document.setdefault("search", {})[name] = outcome
    write(document)
    print(name, outcome, flush=True)


if __name__ == "__main__":
    main()
