"""The automatic server step against a tuned one, on Fashion-MNIST.

    python benchmarks/auto_step.py IDX_FOLDER [--only cnn,dirichlet:0.3,100] [--settings one-bit ...]

For each of {softmax, mlp:64, mlp:512, cnn} x {iid, dirichlet:0.3} x compression {10, 30, 100}: runs with
``eta_global="auto"``, and with fixed steps eta_global = m sqrt(b/d), m = 4, 8, 16 and on by factors of two until the
best is no edge of the grid, at momentum 0.5; then momentum 0.9 at the best step and at half of it.  Same seeds, data,
rounds and codec; accuracies are means over the seeds.  ``gap`` is the best test accuracy of the grid minus the
automatic one, in points: choosing by the test set favours the grid.

``--settings`` repeats some cells with one bit a number, with client momentum (one bit, K = 5: the defaults there), with
5 of 25 clients a round, and with client-level privacy.
Every run is kept in ``runs/auto_step.json`` as soon as it is made, every finished cell in
``benchmarks/results/auto_step.json``; a second call goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import torch

from desketch.core.files import write_durably
from desketch.fed import run
from desketch.tasks import RunConfig, prepare

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "auto_step.json"
RUNS = ROOT / "runs" / "auto_step.json"
MODELS = ("softmax", "mlp:64", "mlp:512", "cnn")
PARTITIONS = ("iid", "dirichlet:0.3")
COMPRESSIONS = (10, 30, 100)
SEEDS = {"softmax": 3, "mlp:64": 3, "mlp:512": 3, "cnn": 1}
MULTIPLES = (4.0, 8.0, 16.0)
RUN: dict[str, Any] = {
    **{"clients": 5, "local_steps": 20, "batch_size": 16, "rounds": 40},
    **{"codec": "int4", "client_momentum": 0.0},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one-bit": {"codec": "sign1"},
    "defaults": {"codec": "sign1", "client_momentum": "auto"},
    "client-momentum": {"codec": "sign1", "local_steps": 5, "client_momentum": 0.8},
    "partial": {"clients": 25, "fraction": 0.2},
    "noise": {
        "clients": 50,
        "dp": {"mechanism": "sketch-clip", "clip": 1.0, "noise_multiplier": 0.5, "delta": 1e-5},
    },
}
ONCE = (("mlp:64", "dirichlet:0.3", 30), ("mlp:512", "dirichlet:0.3", 100))  # the cells of the settings but plain

Cell = dict[str, Any]


class Runs:
    """Test accuracies of finished runs, kept on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: dict[str, float] = json.loads(RUNS.read_text()) if RUNS.exists() else {}

    def mean(self, cell: Cell, **step: Any) -> float:
        """Test accuracy after all rounds in percent, the mean over the cell's seeds."""
        return (
            sum(self._one({**cell, **step, "seed": seed}) for seed in range(SEEDS[cell["model"]]))
            / SEEDS[cell["model"]]
        )

    def _one(self, settings: dict[str, Any]) -> float:
        name = json.dumps(settings, sort_keys=True)
        if name not in self.done:
            config = RunConfig(task=f"idx:{self.folder}", **settings, validation=0.0, evaluate_every=settings["rounds"])
            setup = prepare(config)
            federation = setup.federation()
            run(federation, rounds=config.rounds)
            self.done[name] = 100 * setup.evaluate(federation.model_vector)["accuracy"]
            RUNS.parent.mkdir(exist_ok=True)
            write_durably(RUNS, json.dumps(self.done, indent=1).encode())
        return self.done[name]


def measure(runs: Runs, cell: Cell) -> dict[str, Any]:
    """The automatic step, the grid, and the gap between them."""
    automatic = runs.mean(cell, eta_global="auto")
    grid = search(runs, cell)
    (best_m, best_beta), best = max(grid.items(), key=lambda point: point[1])
    return {
        "auto": automatic,
        "best": best,
        "best_eta": _eta(best_m, cell),
        "best_momentum": best_beta,
        "gap": best - automatic,
        "seeds": SEEDS[cell["model"]],
        "grid": {f"{m:g} sqrt(b/d), momentum {beta}": accuracy for (m, beta), accuracy in grid.items()},
    }


def search(runs: Runs, cell: Cell) -> dict[tuple[float, float], float]:
    """Accuracy by (m, momentum): m grows and shrinks until the best is no edge, then the longer memory is tried."""

    def look(m: float, beta: float) -> None:
        grid[m, beta] = runs.mean(cell, eta_global=_eta(m, cell), momentum=beta)

    grid: dict[tuple[float, float], float] = {}
    for m in MULTIPLES:
        look(m, 0.5)
    while (best := max(grid, key=lambda point: grid[point])[0]) in (max(grid)[0], min(grid)[0]):
        look(best * 2 if best == max(grid)[0] else best / 2, 0.5)
    for m in (best / 2, best):
        look(m, 0.9)
    return grid


def _eta(m: float, cell: Cell) -> float:
    return float(f"{m * cell['compression'] ** -0.5:.4g}")


def main() -> None:
    """Measure every cell that has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the Fashion-MNIST IDX files")
    parser.add_argument("--only", help="one cell: MODEL,PARTITION,COMPRESSION")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs(arguments.folder)
    rows = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    done = {(row["setting"], row["model"], row["partition"], row["compression"]) for row in rows}
    for setting in arguments.settings:
        for key in ONCE if setting != "plain" else product(MODELS, PARTITIONS, COMPRESSIONS):
            name = ",".join(map(str, key))
            if (setting, *key) in done or (arguments.only and arguments.only != name):
                continue
            where = dict(zip(("model", "partition", "compression"), key, strict=True))
            row = measure(runs, {**RUN, **SETTINGS[setting], **where})
            rows.append({"setting": setting, **where, **row})
            document = {
                "command": "python benchmarks/auto_step.py IDX_FOLDER",
                "run": RUN,
                "settings": SETTINGS,
                "cells": rows,
            }
            write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())
            print(f"{setting} {name}: auto {row['auto']:.2f}, best {row['best']:.2f} at {row['best_eta']} "
                  f"momentum {row['best_momentum']}, gap {row['gap']:+.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
