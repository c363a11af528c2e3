"""Loss against bytes: a character GPT trained by several workers over every method people use, and by one alone.

    python benchmarks/language_model.py --text tinyshakespeare/input.txt                       every row, three seeds
    python benchmarks/language_model.py --text tinyshakespeare/input.txt --text stdlib --shards text --rows alone
    python benchmarks/language_model.py --text ... --engine ranks --link 1mbit --rows alone diloco-int4:every=20

Every worker has its own shard, batches and AdamW; rows differ in what travels.  Bytes are what a worker's collectives
send and receive, payload, by one rule: an all-reduce of n bytes is 2 (W-1)/W n each way, an all-gather of n bytes
(W-1) n, an all-to-all what leaves and enters.  Two engines, the same losses to rounding: "in-process" runs all workers
in one compiled computation (``lm_batched.py``), "ranks" is a process each over gloo (``lm_ranks.py``), which also knows
DDP's hooks, overlap, links and bytes at the interface.  Choices are made by validation loss; test loss is for the
report.  A row is a method with settings, "sketch:compression=10,every=5"; finished cells are kept in
``benchmarks/results/language_model.json`` and skipped when the command is given again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "language_model.json"
sys.path.insert(0, str(ROOT))

ROWS = (
    "alone",
    "ddp",
    "ddp:lr=0.006",
    *(f"powersgd:rank={r}" for r in (1, 2, 4)),
    "demo:share=0.008,lr=0.001",
    "hook:compression=10",
    "hook:compression=100",
    *(f"diloco:every={H},outer_lr={lr}" for H, lr in ((5, 0.25), (20, 0.7), (100, 0.7))),
    *(f"diloco-{code}:every={H},outer_lr={lr}" for code in ("int8", "int4") for H, lr in ((5, 0.25), (20, 0.7))),
    *(
        f"sparseloco:share={share},every={H},outer_lr={lr}"
        for share in (0.01, 0.02, 0.05)
        for H in (5, 20)
        for lr in (1.0, 3.0)
    ),
    *(f"sketch:compression={c},every={H}" for c, H in ((2.5, 20), (2.5, 80), (10, 5), (10, 20), (30, 5), (30, 20))),
    "sketch:compression=10,every=20,weights=none",
    "sketch:compression=10,every=20,overlap=1",
)


IDENTITY = (
    *("row", "seed", "engine", "link", "world", "shards", "texts"),
    *("layers", "width", "context", "batch", "steps", "lr", "warmup", "windows"),
)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell by the engine it names."""
    if job["engine"] == "ranks":
        from lm_ranks import run
    else:
        from lm_batched import run
    result = run(job)
    tokens = job["world"] * job["steps"] * job["batch"] * job["context"]
    identity = {name: job[name] for name in IDENTITY} | {"texts": [Path(text).name for text in job["texts"]]}
    return {
        **identity,
        "tokens": tokens,
        "bytes_per_parameter": round(result["bytes"] / result["d"], 4),
        **result,
    }


def done(document: dict[str, Any], job: dict[str, Any]) -> bool:
    """Whether a cell has its result; texts are known by name, wherever they lie."""
    identity = {name: job[name] for name in IDENTITY} | {"texts": [Path(text).name for text in job["texts"]]}
    return any(all(row.get(name) == value for name, value in identity.items()) for row in document["rows"])


def main() -> None:
    """Run every cell that has no result yet."""
    from desketch.core.files import write_durably

    args = _arguments()
    if args.worker:
        from lm_ranks import worker

        return worker(json.loads(args.worker))
    shape = {
        name: getattr(args, name) for name in ("shards", "layers", "width", "context", "batch", "steps", "lr", "warmup")
    }
    for seed in args.seeds:
        for row in args.rows:
            where = {"engine": args.engine, "link": args.link, "world": args.workers, "texts": args.text}
            job = {"row": row, "seed": seed, **where, "windows": args.windows, **shape}
            document = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
            if done(document, job):
                continue
            result = measure(job)
            document = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}  # others write too
            document["rows"].append(result)
            document["command"] = "python benchmarks/language_model.py --text FILE [--text stdlib --shards text]"
            write_durably(args.out, json.dumps(document, indent=1) + "\n")
            print(
                f"{row}, seed {seed}: validation {result['validation'][0]:.4f}, test {result['test'][0]:.4f} at "
                f"{result['bytes_per_parameter']:g} bytes a parameter, {sum(result['cpu_seconds']):.0f} s CPU",
                flush=True,
            )
    return None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", action="append", default=[], help="a UTF-8 file, or stdlib; two for two kinds")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--engine", choices=("in-process", "ranks"), default="in-process")
    parser.add_argument("--link", help='with --engine ranks: the links\' rate as tc writes it, "1mbit"; needs root')
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shards", choices=("iid", "text"), default="iid")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=float, default=0.05, help="part of the steps in which the learning rate rises")
    parser.add_argument("--windows", type=int, default=512, help="windows a text and part is evaluated on")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.link and args.engine != "ranks":
        parser.error("--link needs --engine ranks")
    if not args.text and not args.worker:
        parser.error("--text names what to train on: a UTF-8 file, or stdlib")
    return args


if __name__ == "__main__":
    main()
