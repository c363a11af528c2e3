"""Where client momentum pays, on validation data: each federation with it and without, the other settings as they come.

    python benchmarks/client_momentum.py --data FOLDER

FOLDER has Fashion-MNIST.  One bit a number both ways, automatic step, the metric of the mean of ten iterates, seed by
seed, along the run.  Finished cells are kept in ``benchmarks/results/client_momentum.json`` and a rerun continues.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from desketch.api.comparison import make_problem
from desketch.baselines.methods import METHODS
from desketch.baselines.trial import Limits, train
from desketch.core.files import write_durably
from desketch.tasks import Task, load_task

RESULT = Path(__file__).resolve().parent / "results" / "client_momentum.json"
BETAS, EVERY = (0.0, 0.65, 0.8), 10


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A federation on Fashion-MNIST, or on the embedded digits."""

    task: str = "images"
    model: str = "mlp:512"
    clients: int = 10
    split: str = "iid"
    fraction: float = 1.0
    K: int = 20
    b: int = 4096
    rounds: int = 60
    seeds: int = 3


CELLS = (
    Cell(task="digits", model="mlp:64", clients=20, split="dirichlet:0.5", b=160, seeds=8),
    Cell(),
    Cell(split="dirichlet:0.3"),
    Cell(model="mlp:64", b=1696),
    Cell(model="mlp:64", b=1696, split="dirichlet:0.3"),
    Cell(K=5),
    Cell(K=100, rounds=20),
    *(Cell(model="mlp:64", b=1696, clients=50, split="dirichlet:0.3", fraction=share) for share in (0.2, 0.5)),
    *(Cell(model="mlp:64", b=848, clients=50, split="dirichlet:0.3", fraction=share, K=5) for share in (0.2, 0.5)),
)


def main(data: Annotated[Path, typer.Option(help="folder with the four IDX files of Fashion-MNIST")]) -> None:
    """Run every cell that has no result yet; each is written as soon as its seeds are done."""
    torch.set_num_threads(1)
    tasks = {"images": load_task(f"idx:{data}"), "digits": load_task("digits")}
    for cell in CELLS:
        for beta in BETAS:
            rows = json.loads(RESULT.read_text())["cells"] if RESULT.exists() else []
            if any(row["federation"] == asdict(cell) and row["beta"] == beta for row in rows):
                continue
            rows.append({"federation": asdict(cell), "beta": beta, "curves": _curves(cell, tasks[cell.task], beta)})
            document = {"command": "python benchmarks/client_momentum.py --data FOLDER", "cells": rows}
            write_durably(RESULT, json.dumps(document, indent=1) + "\n")
            print(cell, beta, [curve[-1][1] for curve in rows[-1]["curves"]], flush=True)


def _curves(cell: Cell, task: Task, beta: float) -> list[list[list[Any]]]:
    """Round and metric, seed by seed."""
    problem = make_problem(
        task,
        model=cell.model,
        clients=cell.clients,
        split=cell.split,
        fraction=cell.fraction,
        local_steps=cell.K,
    )
    desketch = METHODS["desketch"]
    setting = {**desketch.untuned, "b": cell.b, "client_momentum": beta}
    limits = Limits(target=1.1, rounds=cell.rounds, every=EVERY)
    trials = (
        train(problem, desketch, setting, seed=seed, limits=limits, split=problem.validation, averages=(10,))
        for seed in range(cell.seeds)
    )
    return [[[point.round, round(point.value, 5)] for point in trial.curves[10]] for trial in trials]


if __name__ == "__main__":
    typer.run(main)
