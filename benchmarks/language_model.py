"""Loss against bytes: a character GPT trained by several ranks over every method people use, and by one rank alone.

    python benchmarks/language_model.py --text ../shared/data/tinyshakespeare/input.txt        every row, three seeds
    python benchmarks/language_model.py --text A --text B --shards text --rows alone diloco:every=20

Real gloo ranks on this machine.  Every rank has its own shard, batches and AdamW; rows differ in what travels.  Bytes
are what a rank's collectives send and receive, payload, by one rule: an all-reduce of n bytes is 2 (W-1)/W n each way,
an all-gather of n bytes (W-1) n, an all-to-all what leaves and enters.  Choices are made by validation loss; test loss
is for the report.  A row is a method with settings, "sketch:compression=10,every=5"; finished rows are kept in
``benchmarks/results/language_model.json`` and skipped when the command is given again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "language_model.json"

ROWS = (
    "alone",
    "ddp",
    "ddp:lr=0.006",
    *(f"powersgd:rank={r}" for r in (1, 2, 4)),
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


def parse(row: str) -> tuple[str, dict[str, Any]]:
    """``"diloco:every=20,outer_lr=0.7"`` as a name and its settings."""
    name, _, rest = row.partition(":")
    settings: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return name, settings


class Wiretap:
    """Counts what DDP's collectives carry; the outer step counts its own by the same rule."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.bytes = 0.0
        plain = dist.all_reduce

        def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            world = dist.get_world_size(kwargs.get("group"))
            self.bytes += 2 * (world - 1) / world * tensor.numel() * tensor.element_size()
            return plain(tensor, *args, **kwargs)

        dist.all_reduce = all_reduce


def texts(paths: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """The symbols of all texts together, and each text cut into train, validation and test numbers."""
    import numpy as np

    raw = [Path(path).read_text(encoding="utf-8") for path in paths]
    alphabet = {c: i for i, c in enumerate(sorted(set("".join(raw))))}
    cut = []
    for text in raw:
        codes = np.array([alphabet[c] for c in text])
        a, b = int(0.8 * len(codes)), int(0.9 * len(codes))
        cut.append({"train": codes[:a], "validation": codes[a:b], "test": codes[b:]})
    return len(alphabet), cut


def shard(cut: list[dict[str, Any]], rank: int, world: int, how: str) -> Any:
    """A rank's training numbers: a contiguous part of all texts (iid), or of one text only (text)."""
    import numpy as np

    if how == "text":
        mine = rank * len(cut) // world
        ranks = [r for r in range(world) if r * len(cut) // world == mine]
        return np.array_split(cut[mine]["train"], len(ranks))[ranks.index(rank)]
    return np.concatenate([np.array_split(part["train"], world)[rank] for part in cut])


def worker(job: dict[str, Any]) -> None:
    """One rank: train, then report losses and bytes."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{job['folder']}/meet", rank=job["rank"], world_size=job["world"]
    )
    tap = Wiretap()
    symbols, cut = texts(job["texts"])
    data = torch.from_numpy(shard(cut, job["rank"], job["world"], job["shards"]))
    model, wrapped, optimizer, outer = build(job, symbols)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / job["steps"])))
    )
    draw = torch.Generator().manual_seed(1000 * job["seed"] + job["rank"])
    curve, started = [], time.process_time()
    for step in range(1, job["steps"] + 1):
        loss = batch_loss(wrapped, data, job["batch"], job["context"], draw)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if outer is not None:
            outer.step()
        if step % max(1, job["steps"] // 10) == 0 and job["rank"] == 0:
            sent = outer.stats.sent + outer.stats.received if outer is not None else 2 * tap.bytes
            curve.append([step, sent, evaluate(model, cut, "validation", job)[0]])
    if outer is not None:
        outer.finish()
    cpu = time.process_time() - started
    stats = (outer.stats.sent, outer.stats.received) if outer is not None else (tap.bytes, tap.bytes)
    report = {
        "bytes": sum(stats),
        "validation": evaluate(model, cut, "validation", job),
        "test": evaluate(model, cut, "test", job),
        "cpu_seconds": round(cpu, 2),
        "curve": curve,
        "d": sum(p.numel() for p in model.parameters()),
    }
    Path(job["folder"], f"rank{job['rank']}.json").write_text(json.dumps(report), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def build(job: dict[str, Any], symbols: int) -> tuple[Any, Any, Any, Any]:
    """Model, what the forward pass calls, inner optimiser and outer step of a row."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    from desketch import Key, Wire
    from desketch.integrations.torch import METHODS, SketchedOuter, SketchState, Sparse, sketch_hook
    from desketch.tasks.gpt import Gpt

    name, settings = parse(job["row"])
    lr = settings.pop("lr", job["lr"])
    torch.manual_seed(job["seed"])
    model = Gpt(symbols=symbols, context=job["context"], layers=job["layers"], width=job["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.1)
    key = Key(2023).fold_in("language model", job["seed"])
    if name in ("ddp", "powersgd", "hook"):
        parallel = DistributedDataParallel(model)
        if name == "ddp":
            parallel.register_comm_hook(None, default_hooks.allreduce_hook)
        elif name == "powersgd":
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=settings["rank"], start_powerSGD_iter=2, min_compression_rate=1
            )
            parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            parallel.register_comm_hook(SketchState(key=key, **settings), sketch_hook)
        return model, parallel, optimizer, None
    if name == "alone":
        return model, model, optimizer, None
    if name == "sketch":
        settings["wire"] = Wire(compression=settings.pop("compression"), codec=settings.pop("codec", "sign1"))
    elif name == "sparseloco":
        settings["wire"] = Sparse(share=settings.pop("share"), decay=settings.pop("decay", 0.95))
    elif name == "auto":
        settings |= {"method": "auto", "steps": job["steps"]}
    else:
        settings["wire"] = METHODS[name]
    settings["overlap"] = bool(settings.get("overlap", False))
    return model, model, optimizer, SketchedOuter(model, optimizer, key=key, **settings)


def batch_loss(model: Any, data: Any, batch: int, context: int, draw: Any) -> Any:
    """The loss of random windows of the shard."""
    import torch

    starts = torch.randint(len(data) - context - 1, (batch,), generator=draw)
    rows = torch.stack([data[i : i + context + 1] for i in starts.tolist()])
    logits = model(rows[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def evaluate(model: Any, cut: list[dict[str, Any]], part: str, job: dict[str, Any]) -> list[float]:
    """Mean over the texts, then each: the loss on evenly spaced windows."""
    import torch

    model.eval()
    losses = []
    with torch.no_grad():
        for text in cut:
            codes, n = torch.from_numpy(text[part]), job["context"]
            starts = torch.linspace(0, len(codes) - n - 1, min(job["windows"], len(codes) // n)).long().tolist()
            rows = torch.stack([codes[i : i + n + 1] for i in starts])
            total = 0.0
            for some in rows.split(64):
                logits = model(some[:, :-1])
                total += float(
                    torch.nn.functional.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten(), reduction="sum")
                )
            losses.append(total / rows[:, 1:].numel())
    model.train()
    return [sum(losses) / len(losses), *losses]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start the ranks of a row and collect their reports; every rank's model counts, equal or not."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", json.dumps({**job, "rank": rank, "folder": folder})],
                env=environment,
            )
            for rank in range(job["world"])
        ]
        codes = [process.wait() for process in ranks]
        if any(codes):
            raise SystemExit(f"{job['row']}, seed {job['seed']}: ranks ended with {codes}; the rows before are kept")
        reports = [json.loads(Path(folder, f"rank{r}.json").read_text()) for r in range(job["world"])]
    mean = {
        part: [round(sum(values) / len(values), 4) for values in zip(*(r[part] for r in reports), strict=True)]
        for part in ("validation", "test")
    }
    sent = sum(r["bytes"] for r in reports) / len(reports)
    return {
        **{name: job[name] for name in IDENTITY},
        **mean,
        "bytes": round(sent),
        "bytes_per_parameter": round(sent / reports[0]["d"], 4),
        "d": reports[0]["d"],
        "cpu_seconds": [r["cpu_seconds"] for r in reports],
        "curve": reports[0]["curve"],
    }


IDENTITY = ("row", "seed", "world", "shards", "texts", "layers", "width", "context", "batch", "steps", "lr", "windows")


def main() -> None:
    """Run every row that has no result yet."""
    from desketch.core.files import write_durably

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", action="append", default=[], help="a UTF-8 file; give two for texts of two kinds")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shards", choices=("iid", "text"), default="iid")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--windows", type=int, default=512, help="windows a text and part is evaluated on")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(json.loads(args.worker))
    document = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    # texts are known by name, so that a result does not depend on where they lie
    shape = {name: getattr(args, name) for name in ("shards", "layers", "width", "context", "batch", "steps", "lr")}
    for seed in args.seeds:
        for row in args.rows:
            job = {
                "row": row,
                "seed": seed,
                "world": args.workers,
                "texts": args.text,
                "windows": args.windows,
                **shape,
            }
            named = {name: job[name] for name in IDENTITY} | {"texts": [Path(text).name for text in args.text]}
            if any(all(done[name] == value for name, value in named.items()) for done in document["rows"]):
                continue
            result = run(job) | {"texts": named["texts"]}
            document["rows"].append(result)
            document["command"] = "python benchmarks/language_model.py --text FILE [--text FILE --shards text]"
            write_durably(args.out, json.dumps(document, indent=1) + "\n")
            print(f"{row}, seed {seed}: test {result['test'][0]:.4f} at {result['bytes']:,} bytes", flush=True)


if __name__ == "__main__":
    main()
