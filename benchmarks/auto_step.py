"""The automatic server step against a tuned one, on Fashion-MNIST.

    python benchmarks/auto_step.py IDX_FOLDER [--only cnn,dirichlet:0.3,100]

For each of {softmax, mlp:64, mlp:512, cnn} x {iid, dirichlet:0.3} x compression {10, 30, 100}: one run with
``eta_global="auto"`` and one per eta_global in a grid of multiples of sqrt(b/d), same seed, data, rounds and codec.
``gap`` is the best test accuracy of the grid minus the automatic one, in points: choosing by the test set favours the
grid.

One row per cell is appended to ``benchmarks/results/auto_step.json`` as soon as it is measured; a second call goes on
where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

from desketch.fed import run
from desketch.fed.checkpoint import write_atomically
from desketch.tasks import RunConfig, prepare

RESULTS = Path(__file__).parent / "results" / "auto_step.json"
MODELS = ("softmax", "mlp:64", "mlp:512", "cnn")
PARTITIONS = ("iid", "dirichlet:0.3")
COMPRESSIONS = (10, 30, 100)
MULTIPLES = (1.0, 2.0, 4.0, 8.0, 16.0)
RUN: dict[str, Any] = {"clients": 5, "local_steps": 20, "batch_size": 16, "rounds": 40, "codec": "int4", "seed": 0}


def accuracy(folder: Path, cell: dict[str, Any], eta_global: float | str) -> float:
    """Test accuracy after all rounds, in percent."""
    config = RunConfig(
        task=f"idx:{folder}", **RUN, **cell, eta_global=eta_global, validation=0.0, evaluate_every=RUN["rounds"]
    )
    setup = prepare(config)
    federation = setup.federation()
    run(federation, rounds=config.rounds)
    return 100 * setup.evaluate(federation.model_vector)["accuracy"]


def measure(folder: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """One row: the automatic step, the grid, and the gap between them."""
    started = time.process_time()
    automatic = accuracy(folder, cell, "auto")
    scale = cell["compression"] ** -0.5
    grid = {f"{m * scale:.4g}": accuracy(folder, cell, m * scale) for m in MULTIPLES}
    best = max(grid, key=lambda eta: grid[eta])
    while float(best) == max(map(float, grid)):  # the best must not lie on the grid's upper edge
        eta = 2 * float(best)
        grid[f"{eta:.4g}"] = accuracy(folder, cell, eta)
        best = max(grid, key=lambda eta: grid[eta])
    return {
        **cell,
        **RUN,
        "auto": automatic,
        "grid": grid,
        "best_eta": float(best),
        "best": grid[best],
        "gap": grid[best] - automatic,
        "cpu_seconds": time.process_time() - started,
    }


def main() -> None:
    """Measure every cell that has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the Fashion-MNIST IDX files")
    parser.add_argument("--only", help="one cell: MODEL,PARTITION,COMPRESSION")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {(row["model"], row["partition"], row["compression"]) for row in rows}
    for key in product(MODELS, PARTITIONS, COMPRESSIONS):
        name = ",".join(map(str, key))
        if key in done or (arguments.only and arguments.only != name):
            continue
        row = measure(arguments.folder, dict(zip(("model", "partition", "compression"), key, strict=True)))
        rows.append(row)
        RESULTS.parent.mkdir(exist_ok=True)
        write_atomically(RESULTS, (json.dumps(rows, indent=1) + "\n").encode())
        print(f"{name}: auto {row['auto']:.2f}, best {row['best']:.2f} at {row['best_eta']}, gap {row['gap']:+.2f}")


if __name__ == "__main__":
    main()
