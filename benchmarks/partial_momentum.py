"""Client momentum under partial participation, on validation data: Fashion-MNIST, Dirichlet 0.3, one bit, K = 5.

    python benchmarks/partial_momentum.py --data FOLDER

For each share of the clients asked in a round and each beta: the validation accuracy of the mean of ten iterates, over
the second half of the run and over the seeds.  Written to ``benchmarks/results/partial_momentum.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer

from desketch.api.comparison import make_problem
from desketch.baselines.methods import METHODS
from desketch.baselines.trial import Limits, train
from desketch.tasks import load_task

RESULT = Path(__file__).resolve().parent / "results" / "partial_momentum.json"
MODEL, CLIENTS, SPLIT, STEPS, B, ROUNDS = "mlp:64", 50, "dirichlet:0.3", 5, 848, 120
FRACTIONS, BETAS, SEEDS = (0.1, 0.2, 0.5), (0.0, 0.5, 0.8), (0, 1, 2)


def main(data: Annotated[Path, typer.Option(help="folder with the four IDX files of Fashion-MNIST")]) -> None:
    """Run every cell; each is written as soon as its seeds are done."""
    torch.set_num_threads(1)
    task = load_task(f"idx:{data}")
    cells = []
    for fraction in FRACTIONS:
        problem = make_problem(task, model=MODEL, clients=CLIENTS, split=SPLIT, fraction=fraction, local_steps=STEPS)
        for beta in BETAS:
            setting = {**METHODS["desketch"].untuned, "b": B, "client_momentum": beta}
            limits = Limits(target=1.1, rounds=ROUNDS, every=10)
            by_seed = []
            for seed in SEEDS:
                trial = train(problem, METHODS["desketch"], setting, seed=seed, limits=limits, split=problem.validation)
                late = [point.value for point in trial.curves[10] if point.round > ROUNDS // 2]
                by_seed.append({"late": fmean(late), "last": trial.curves[10][-1].value})
            cells.append({"fraction": fraction, "beta": beta, "seeds": by_seed})
            print(fraction, beta, [round(100 * one["late"], 2) for one in by_seed])
            what = {"model": MODEL, "clients": CLIENTS, "split": SPLIT, "K": STEPS, "b": B, "rounds": ROUNDS}
            document = {**what, "command": "python benchmarks/partial_momentum.py --data FOLDER", "cells": cells}
            RESULT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
