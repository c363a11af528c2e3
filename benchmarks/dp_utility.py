"""Accuracy and bytes at equal (epsilon, delta): unsketched DP, noise before the sketch, and the clipped sketch.

    python benchmarks/dp_utility.py --fashion FOLDER --json benchmarks/results/dp_utility.json

Rows are written one by one and a second call goes on where the first one stopped.  For every task, method and epsilon
the server's step size is chosen on the validation set with a seed of its own (which a real run would have to pay for),
then the five seeds are trained and scored on the test set.  Noise and sampling come from OS entropy, so a repeated run
agrees within the spread, not to the digit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from desketch.fed import Observer, RoundRecord, run
from desketch.fed.mechanism import RoundLedger
from desketch.tasks import RunConfig, prepare

DELTA = 1e-5
EPSILONS = (1.0, 4.0, 8.0)
SEEDS = (0, 1, 2, 3, 4)
TUNING_SEED = 1000
COMPRESSION = 30.0

PLAIN = {"family": "uniform", "compression": 1.0}  # b = d: the identity
SKETCH = {"compression": COMPRESSION}
PER_STEP = {"mechanism": "per-step", "unit": "example"}
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # name -> (unit, wire, dp)
    "DP-FedAvg": ("client", PLAIN, {"mechanism": "sketch-clip", "unit": "client"}),
    "sketch-clip, client": ("client", SKETCH, {"mechanism": "sketch-clip", "unit": "client"}),
    "DP-SGD": ("example", PLAIN, PER_STEP),
    "noise before sketch": ("example", SKETCH, PER_STEP),
    "sketch-clip, example": ("example", SKETCH, {"mechanism": "sketch-clip", "unit": "example"}),
}
# what a task needs at each unit of privacy; the same for every method of that unit
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("digits", "client"): {"clients": 646, "fraction": 0.15, "rounds": 200, "local_steps": 5, "batch_size": None},
    ("digits", "example"): {"clients": 1, "rounds": 500, "local_steps": 1, "batch_size": 64},
    ("fashion", "client"): {"clients": 1000, "fraction": 0.1, "rounds": 150, "local_steps": 5, "batch_size": 16},
    ("fashion", "example"): {"clients": 2, "rounds": 400, "local_steps": 1, "batch_size": 64},
}
FAMILY = "srht"
LOCAL_STEP = {"client": 0.3, "example": 1.0}
CLIP = {("digits", "client"): 0.5, ("fashion", "client"): 0.5, ("digits", "example"): 1.0, ("fashion", "example"): 1.0}
STEPS = {"client": (0.3, 0.8, 2.0), "example": (0.2, 0.6, 1.8)}


@dataclass
class Store:
    """The results file: tuned steps, calibrated noise and rows, written after every change."""

    path: Path
    data: dict[str, Any] = field(default_factory=lambda: {"tuned": {}, "noise": {}, "rows": []})

    def __post_init__(self) -> None:
        if self.path.exists():
            self.data = json.loads(self.path.read_text())

    def save(self) -> None:
        """Write atomically."""
        partial = self.path.with_suffix(".partial")
        command = "python benchmarks/dp_utility.py --fashion FOLDER --json benchmarks/results/dp_utility.json"
        partial.write_text(json.dumps({"command": command, "delta": DELTA} | self.data, indent=1) + "\n")
        os.replace(partial, self.path)

    def has(self, **key: Any) -> bool:
        """Whether a row with these values is there."""
        return any(all(row[name] == value for name, value in key.items()) for row in self.data["rows"])


class Traffic(Observer):
    """The bytes of all clients together."""

    up = 0
    down = 0

    def on_round(self, record: RoundRecord) -> None:
        """Add a round."""
        self.up += record.bytes_up
        self.down += record.bytes_down


class Counting:
    """A run's ledger without the epsilon of every round, which would cost more than the training."""

    def __init__(self, ledger: RoundLedger) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def epsilon(self) -> None:
        """Not asked before the end."""


def train(store: Store, task: str, method: str, epsilon: float, seed: int, eta: float, source: str) -> dict[str, Any]:
    """Train once; return accuracies, bytes and what was spent."""
    unit, wire, dp = METHODS[method]
    noise = f"{task} {unit} {epsilon:g}"
    known = store.data["noise"].get(noise)  # calibrated once: the methods of a unit release the same events
    config = RunConfig(
        **{"family": FAMILY} | wire | SETTINGS[task, unit],
        task=source,
        model="softmax",
        partition="iid",
        seed=seed,
        eta_local=LOCAL_STEP[unit],
        codec="f32",
        codec_down="f32",
        server_optimizer="momentum",
        eta_global=eta,
        average=20,
        evaluate_every=10**6,
        dp=dp
        | {"delta": DELTA, "clip": CLIP[task, unit]}
        | ({"noise_multiplier": known} if known else {"epsilon": epsilon}),
    )
    start = time.process_time()
    setup = prepare(config)
    privacy = setup.privacy()
    assert privacy is not None
    mechanism = privacy.step or privacy.examples or privacy.sketch
    store.data["noise"][noise] = mechanism.noise_multiplier  # type: ignore[union-attr]
    federation = setup.federation(privacy=replace(privacy, ledger=Counting(privacy.ledger)))
    traffic = Traffic()
    run(federation, rounds=config.rounds, observer=traffic)
    scores = setup.evaluate(federation.model_vector)
    return {
        "accuracy": round(scores["accuracy"], 5),
        "val_accuracy": round(scores["val_accuracy"], 5),
        "rounds": federation.t,
        "spent": round(privacy.ledger.spent(), 4),  # type: ignore[attr-defined]
        "d": setup.model.d,
        "b": config.sketch_size(setup.model.d),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
        "cpu_seconds": round(time.process_time() - start, 2),
    }


def tuned(store: Store, task: str, method: str, epsilon: float, source: str) -> float:
    """Return the server step of a configuration, chosen once on the validation set."""
    name = f"{task} | {method} | {epsilon:g}"
    if name not in store.data["tuned"]:
        tried = {
            eta: train(store, task, method, epsilon, TUNING_SEED, eta, source)["val_accuracy"]
            for eta in STEPS[METHODS[method][0]]
        }
        store.data["tuned"][name] = {"eta": max(tried, key=lambda eta: tried[eta]), "tried": tried}
        store.save()
        print(name, store.data["tuned"][name], flush=True)
    return float(store.data["tuned"][name]["eta"])


def plan(tasks: list[str]) -> Iterator[tuple[int, str, float, str]]:
    """Yield the rows, seeds outside of methods, so that a file that is not complete is still balanced."""
    for task in tasks:
        for unit in ("example", "client"):
            for seed in SEEDS:
                for epsilon in EPSILONS:
                    for method in (name for name, (of, *_) in METHODS.items() if of == unit):
                        yield seed, task, epsilon, method


def draw(store: Store, path: Path) -> None:
    """Draw mean accuracy against the bytes of all clients, one panel per task and unit, one mark per epsilon."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = store.data["rows"]
    panels = list(dict.fromkeys((row["task"], row["unit"]) for row in rows))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.4 * len(panels), 3.6), squeeze=False, layout="constrained"
    )
    for panel, (task, unit) in zip(axes[0], panels, strict=True):
        for method in (name for name, (of, *_) in METHODS.items() if of == unit):
            for epsilon, marker in zip(EPSILONS, "osD", strict=True):
                found = [row for row in rows if (row["task"], row["method"], row["epsilon"]) == (task, method, epsilon)]
                if found:
                    sent = sum(row["bytes_up"] + row["bytes_down"] for row in found) / len(found) / 1e6
                    mean = 100 * sum(row["accuracy"] for row in found) / len(found)
                    colour = f"C{list(METHODS).index(method)}"
                    panel.plot(sent, mean, marker, color=colour, label=f"{method}, epsilon {epsilon:g}")
        panel.set(
            xscale="log", xlabel="MB, all clients, both ways", ylabel="test accuracy, %", title=f"{task}, {unit} level"
        )
        panel.xaxis.set_minor_formatter("")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=6)
    figure.savefig(path, dpi=140)


def main() -> None:
    """Fill the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--fashion", type=Path, help="folder with the four IDX files of Fashion-MNIST")
    parser.add_argument("--task", action="append", choices=("digits", "fashion"))
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this many CPU minutes")
    parser.add_argument("--plot", type=Path, help="draw the results file into this image and train nothing")
    arguments = parser.parse_args()
    if arguments.plot:
        draw(Store(arguments.json), arguments.plot)
        return
    torch.set_num_threads(1)
    sources = {"digits": "digits"} | ({"fashion": f"idx:{arguments.fashion}"} if arguments.fashion else {})
    tasks = [task for task in sources if not arguments.task or task in arguments.task]
    store = Store(arguments.json)
    for seed, task, epsilon, method in plan(tasks):
        if time.process_time() > 60 * arguments.minutes:
            break
        if store.has(seed=seed, task=task, epsilon=epsilon, method=method):
            continue
        eta = tuned(store, task, method, epsilon, sources[task])
        row = train(store, task, method, epsilon, seed, eta, sources[task])
        unit, family = METHODS[method][0], METHODS[method][1].get("family", FAMILY)
        head = {"task": task, "unit": unit, "method": method, "epsilon": epsilon, "seed": seed, "family": family}
        store.data["rows"].append(head | {"eta": eta} | row)
        store.save()
        print(head, row["accuracy"], row["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
