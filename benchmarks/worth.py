"""When not to sketch: what `desketch train` advises on federations where communicating pays and where it does not.

    python benchmarks/worth.py --data FOLDER

Written to ``benchmarks/results/worth.json``; one run each, test accuracies beside the validation ones.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from desketch.api.configured import train_run
from desketch.tasks import RunConfig

RESULT = Path(__file__).resolve().parent / "results" / "worth.json"
RUNS: dict[str, dict[str, Any]] = {
    "digits, as it comes": {},
    "digits, iid, 4 clients, softmax": {"partition": "iid", "clients": 4, "model": "softmax"},
    "digits, iid, 4 clients, softmax, 300x": {
        "partition": "iid",
        "clients": 4,
        "model": "softmax",
        "compression": 300,
    },
    "Fashion-MNIST, MLP 64, Dirichlet 0.3, 10 clients, 30x": {
        "task": "images",
        "model": "mlp:64",
        "clients": 10,
        "partition": "dirichlet:0.3",
        "rounds": 30,
    },
    "Fashion-MNIST, MLP 64, iid, 10 clients, 30x": {
        "task": "images",
        "model": "mlp:64",
        "clients": 10,
        "partition": "iid",
        "rounds": 30,
    },
    "Fashion-MNIST, MLP 64, iid, 10 clients, 300x": {
        "task": "images",
        "model": "mlp:64",
        "clients": 10,
        "partition": "iid",
        "rounds": 30,
        "compression": 300,
    },
}


def main(data: Annotated[Path, typer.Option(help="folder with the four IDX files of Fashion-MNIST")]) -> None:
    """Run them all; each is written as soon as it is done."""
    torch.set_num_threads(1)
    rows = []
    for name, settings in RUNS.items():
        task = {"task": f"idx:{data}"} if settings.get("task") == "images" else {}
        with tempfile.TemporaryDirectory() as folder:
            summary = train_run(RunConfig(**{**settings, **task}), out=Path(folder) / "run")
        kept = ("test_accuracy", "rounds", "signal_share", "step_share", "alone")
        rows.append({"run": name, **{key: summary[key] for key in kept}})
        print(name, rows[-1]["alone"].pop("advice"))
        RESULT.write_text(
            json.dumps({"command": "python benchmarks/worth.py --data FOLDER", "runs": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    typer.run(main)
