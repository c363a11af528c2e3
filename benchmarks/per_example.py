"""What per-example clipping costs beside a plain backward pass: book-keeping and vmap on the models of the docs.

    python benchmarks/per_example.py --json benchmarks/results/per_example.json

CPU time of one process, one thread, the contenders interleaved, medians over the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from desketch.core.flat import FlatModel
from desketch.privacy.per_example import PerExample
from desketch.tasks import Task, build_model
from desketch.tasks.goals import Classification

BATCH = 64
MODELS = ("mlp:64", "mlp:512", "mlp:2048", "cnn", "lenet")


def contenders(module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    """Return plain backward, book-keeping and vmap on the same weights and batch."""
    model = FlatModel(module)
    w = model.flatten()
    kept, mapped = PerExample(module), PerExample(module)
    mapped.book_keeping = False
    return {
        "backward": lambda: model.gradient(w, x, y),
        "book_keeping": lambda: kept.clipped_sum(w, x, y, clip=1.0),
        "vmap": lambda: mapped.clipped_sum(w, x, y, clip=1.0),
    }


def measure(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of each call, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 2):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def main() -> None:
    """Measure every model and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    task = Task(name="random", x_train=x, y_train=y, x_val=x, y_val=y, x_test=x, y_test=y, goal=Classification(10))
    rows = []
    for name in MODELS:
        module = build_model(name, task)
        seconds = measure(contenders(module, x, y), arguments.repeats)
        d = sum(p.numel() for p in module.parameters())
        ratio = {k: round(seconds[k] / seconds["backward"], 2) for k in ("book_keeping", "vmap")}
        plain = round(1e3 * seconds["backward"], 3)
        rows.append({"model": name, "d": d, "batch": BATCH, "backward_ms": plain, **ratio})
    partial = arguments.json.with_suffix(".partial")
    partial.write_text(json.dumps({"command": "python benchmarks/per_example.py", "rows": rows}, indent=2) + "\n")
    os.replace(partial, arguments.json)


if __name__ == "__main__":
    main()
