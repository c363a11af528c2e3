"""Bytes to accuracy: the marks of the project, against every baseline.

    python benchmarks/bytes_to_accuracy.py [PARTS] --data FOLDER

FOLDER has Fashion-MNIST; ``digits`` needs none.  Each part is one `desketch compare`.  Finished runs are kept in
``runs/bytes_to_accuracy/two_bytes`` and a rerun continues from them; after every method
``benchmarks/results/bytes_to_accuracy.json`` is written again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from desketch.api.comparison import compare_methods, make_problem, summary
from desketch.baselines.methods import METHODS, Method, find_methods
from desketch.baselines.store import TrialStore
from desketch.baselines.trial import Limits
from desketch.tasks import Task, load_task

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "bytes_to_accuracy.json"
FRAMES = "two bytes"  # what frames a row's payloads; rows with another word here were counted in longer ones


@dataclass(frozen=True, kw_only=True)
class Part:
    """One federation, the methods compared on it, and what was aimed for.

    The table's sizes are those of nets with some 10^5 weights: ``denser`` multiplies every density of the grids, and
    ``smaller`` divides every b, so that on a small net each method still sends less than the whole of it.  ``sooner``
    parts are about the fewest bytes with which a method is ahead of clients alone: in so few rounds a mean of the last
    two updates is enough, and of 100 steps none is needed.  Where only some clients take part in a round, client
    momentum is left to ``auto``, and updates that are no means are too noisy for less than a bit a number; without
    ``thirds`` none of a third of a bit are tried.  ``slower`` divides the local steps of decomfl, whose numbers
    overflow on the CNN with those of the table.
    """

    task: str = "images"
    model: str
    target: float = 0.84
    clients: int = 10
    split: str = "iid"
    fraction: float = 1.0
    local_steps: int
    seeds: int
    methods: tuple[str, ...]
    untuned: tuple[str, ...] = ()
    sooner: bool = False
    rounds: int = 400
    every: int = 5
    denser: float = 1.0
    smaller: float = 1.0
    thirds: bool = True
    slower: float = 1.0
    mark: str

    def fit(self, method: Method) -> Method:
        """The method with its grid as this part has it."""
        means = self.fraction == 1 or self.local_steps >= 100
        beta: float | str = 0.8 if not self.sooner else 0.5 if self.local_steps < 100 else "auto"
        fits = {
            "density": lambda share: share * self.denser,
            "b": lambda b: round(b / self.smaller),
            "client_momentum": lambda _: beta if self.fraction == 1 else "auto",
            "codec": lambda codec: codec if means and self.thirds else "trellis2" if means else "trellis1",
            "codec_down": lambda codec: codec if means and self.thirds else "trellis1",
        }
        if method.name == "decomfl":
            fits["eta_local"] = lambda eta: eta / self.slower
        grid = [{name: fits.get(name, _same)(value) for name, value in setting.items()} for setting in method.grid]
        return replace(method, grid=tuple(grid))


def _same(value: Any) -> Any:
    return value


PARTS = {
    "headline": Part(
        model="mlp:512",
        local_steps=5,
        seeds=5,
        methods=tuple(METHODS),
        mark="500x fewer bytes than fedavgm at 3x its rounds; 10x fewer than the best baseline",
    ),
    "k20": Part(
        model="mlp:512",
        local_steps=20,
        seeds=5,
        methods=("alone", "fedavgm", "desketch"),
        untuned=("desketch",),
        mark="1000x fewer bytes than fedavgm at 2x its rounds",
    ),
    "k20-tuned": Part(
        model="mlp:512",
        local_steps=20,
        seeds=5,
        methods=tuple(METHODS),
        mark="10x fewer bytes than the best baseline",
    ),
    "k100": Part(
        model="mlp:512",
        local_steps=100,
        seeds=5,
        methods=tuple(METHODS),
        mark="10x fewer bytes than the best baseline",
    ),
    "noniid": Part(
        model="mlp:512",
        clients=50,
        split="dirichlet:0.3",
        fraction=0.2,
        local_steps=20,
        seeds=3,
        methods=("alone", "fedavgm", "desketch"),
        untuned=("desketch",),
        rounds=200,
        mark="300x fewer bytes than fedavgm",
    ),
    "cnn": Part(
        model="cnn",
        clients=5,
        local_steps=20,
        seeds=3,
        methods=("alone", "fedavgm", "desketch"),
        untuned=("desketch",),
        rounds=120,
        mark="300x fewer bytes than fedavgm, untuned",
    ),
    "wide": Part(
        model="mlp:2048",
        clients=5,
        local_steps=20,
        seeds=3,
        methods=("alone", "fedavgm", "desketch"),
        untuned=("desketch",),
        rounds=120,
        mark="2000x fewer bytes than fedavgm, untuned",
    ),
    **{  # the same three with desketch tuned like the others
        name: Part(
            model=model,
            clients=clients,
            split=split,
            fraction=fraction,
            local_steps=20,
            seeds=3,
            methods=tuple(METHODS),
            rounds=200,
            smaller=smaller,
            slower=slower,
            mark="5x fewer bytes than the best baseline",
        )
        for name, model, clients, split, fraction, smaller, slower in (
            ("noniid-tuned", "mlp:512", 50, "dirichlet:0.3", 0.2, 0.15, 1.0),  # no client momentum: b = 1707 to 2827
            ("cnn-tuned", "cnn", 5, "iid", 1.0, 1.0, 10.0),
            ("wide-tuned", "mlp:2048", 5, "iid", 1.0, 1.0, 1.0),
        )
    },
    **{  # the fewest bytes that are worth sending where clients alone hold the target too: longer messages for all
        name: Part(
            model=model,
            clients=clients,
            local_steps=K,
            seeds=3,
            methods=("alone", "fedavgm", "fedavgm-int4", "eden", "topk", "stc", "sparseloco", "powersgd", "desketch"),
            sooner=True,
            rounds=200,
            every=every,
            denser=4.0,
            smaller=256 / b,
            thirds=name != "k20-sooner",  # held just before alone on validation data with four other seeds
            mark="5x fewer bytes than the best baseline, and sooner than clients alone",
        )
        for name, model, clients, K, every, b in (
            ("k20-sooner", "mlp:512", 10, 20, 5, 640),
            ("k100-sooner", "mlp:512", 10, 100, 1, 3392),  # a round of 100 steps is as long as five of 20
            ("wide-sooner", "mlp:2048", 5, 20, 5, 1696),
            ("cnn-sooner", "cnn", 5, 20, 5, 2048),
        )
    },
    "k5-86": Part(  # clients alone are at 84.8% when they hold 84% at K = 20
        model="mlp:512",
        target=0.86,
        local_steps=5,
        seeds=3,
        methods=tuple(METHODS),
        mark="5x fewer bytes than the best baseline, where clients alone do not get to",
    ),
    "digits": Part(  # alone: 0.89 on validation data
        task="digits",
        model="mlp:64",
        target=0.95,
        local_steps=5,
        seeds=3,
        methods=tuple(METHODS),
        denser=10.0,  # k = 12 and 48 entries ...
        smaller=4.0,  # ... and b = 64 to 106, where k = 102 and 407, b = 256 to 424 are for 407,050 weights
        mark="5x fewer bytes than the best baseline, where clients alone do not get to",
    ),
}
TASKS = {
    "images": lambda data: load_task(f"idx:{data}"),
    "digits": lambda data: load_task("digits"),
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(PARTS)}; all without")] = None,
    data: Annotated[Path, typer.Option(help="folder with the four IDX files of Fashion-MNIST")] = Path("data"),
    methods: Annotated[str, typer.Option(help="only these methods of each part, comma-separated")] = "",
    seeds: Annotated[int, typer.Option(help="override the number of seeds")] = 0,
    rounds: Annotated[int, typer.Option(help="at most so many rounds, for methods that do not get there")] = 0,
) -> None:
    """Run the parts asked for and merge them into the result file."""
    torch.set_num_threads(1)
    for name in parts or list(PARTS):
        part = replace(PARTS[name], seeds=seeds or PARTS[name].seeds, rounds=rounds or PARTS[name].rounds)
        _run(name, part, TASKS[part.task](data), only=[m for m in methods.split(",") if m])


def _run(name: str, part: Part, task: Task, *, only: Sequence[str]) -> None:
    problem = make_problem(
        task,
        model=part.model,
        clients=part.clients,
        split=part.split,
        fraction=part.fraction,
        local_steps=part.local_steps,
    )
    limits = Limits(target=part.target, rounds=part.rounds, every=part.every)
    store = TrialStore(ROOT / "runs" / "bytes_to_accuracy" / FRAMES.replace(" ", "_") / f"{name}.json")
    with Console(stderr=True).status(name) as status:
        for method in find_methods(list(only or part.methods)):
            (result,) = compare_methods(
                problem,
                [part.fit(method)],
                seeds=part.seeds,
                limits=limits,
                store=store,
                untuned=part.untuned,
                sooner=part.sooner,
                alone=_alone(name),
                progress=lambda label, t, value: status.update(f"{label}: round {t}, {value:.4f}"),
            )
            row = {**result.row(), "frames": FRAMES}
            if row["reached"] < part.seeds:
                row["within"] = part.rounds
            kilobytes = f"{row['bytes'] / 1e3:.1f} kB" if row["bytes"] is not None else "never"
            print(name, row["method"], kilobytes, row["rounds_by_seed"], dict(row["setting"]), row["average_last"])
            everything = json.loads(RESULT.read_text()) if RESULT.exists() else {"parts": {}}
            rows = {row["method"]: row for row in everything["parts"].get(name, {}).get("methods", [])} | {
                method.name: row
            }
            ordered = [rows[known] for known in METHODS if known in rows]
            usual = replace(limits, rounds=PARTS[name].rounds)
            everything["parts"][name] = {
                "mark": part.mark,
                **summary(problem, ordered, limits=usual, sooner=part.sooner),
            }
            _write(everything)


def _alone(name: str) -> float | None:
    """The round in which clients alone hold a part's target on validation data, if that was measured before."""
    parts = json.loads(RESULT.read_text())["parts"] if RESULT.exists() else {}
    rows = {row["method"]: row for row in parts.get(name, {}).get("methods", [])}
    rounds: float | None = rows.get("alone", {}).get("tuning_rounds")
    return rounds


def _write(everything: dict[str, Any]) -> None:
    everything["command"] = f"python benchmarks/bytes_to_accuracy.py {' '.join(PARTS)} --data FOLDER"
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    temporary = RESULT.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(everything, indent=1) + "\n")
    os.replace(temporary, RESULT)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    typer.run(main)
