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

from desketch.fed import run
from desketch.fed.iterates import make_average
from desketch.fed.rounds import Observer, RoundRecord
from desketch.tasks import prepare
from desketch.tasks.config import RunConfig
from mqtt_links import SIGN, results, write
from thin_wire import SETTINGS

ROUNDS, VALIDATION = 20, 0.1
AVERAGES, SEEDS = (1, 3, 10), (0, 1, 2)
CASES = [(compression, beta) for compression in (30.0, 60.0, 120.0, 240.0) for beta in (0.8, 0.0)]


def accuracies(compression: float, beta: float, seed: int, data: str) -> dict[int, list[float]]:
    """Average -> validation accuracy after each round, of one run."""
    settings: dict[str, Any] = {
        **SETTINGS,
        **SIGN,
        "rounds": ROUNDS,
        "validation": VALIDATION,
        "evaluate_every": ROUNDS,
    }
    setup = prepare(
        RunConfig(task=data, **settings | {"compression": compression, "client_momentum": beta, "seed": seed})
    )
    federation, task = setup.federation(), setup.task
    averages = {n: make_average(n) for n in AVERAGES}
    found: dict[int, list[float]] = {n: [] for n in AVERAGES}

    class Watch(Observer):
        def on_round(self, record: RoundRecord) -> None:
            w = federation.server.replica.w
            for n, average in averages.items():
                average.add(w)
                metrics = task.goal.evaluate(setup.model, average.of(w), task.x_val, task.y_val)
                found[n].append(round(metrics["accuracy"], 4))

    run(federation, rounds=ROUNDS, observer=Watch())
    return found


def case(compression: float, beta: float, data: str) -> dict[str, Any]:
    """The means over the seeds."""
    runs = [accuracies(compression, beta, seed, data) for seed in SEEDS]
    means = {str(n): [round(mean(at), 4) for at in zip(*(one[n] for one in runs), strict=True)] for n in AVERAGES}
    return {"compression": compression, "client_momentum": beta, "seeds": len(SEEDS), "averages": means}


def main() -> None:
    """Fill the missing cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Fashion-MNIST as idx:FOLDER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for compression, beta in CASES:
        name = f"{compression:g}x, client momentum {beta:g}"
        if name in results().get("search", {}):
            continue
        outcome = case(compression, beta, args.data)
        document = results()
        document.setdefault("search", {})[name] = outcome
        write(document)
        print(name, outcome, flush=True)


if __name__ == "__main__":
    main()
