"""What a round of the outer step costs a rank: CPU beside 20 inner steps, and memory, on a GPT of 10^7 parameters.

    python benchmarks/outer_cost.py

Two gloo ranks on this machine, one thread each.  CPU is the process' own, all threads; inner steps and rounds take
turns, medians.  Memory is how far the process' peak lies above that of a rank that takes the same steps alone, in
copies of w; the allocator makes it vary by half a copy, so every row runs three times and medians are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "outer_cost.json"
ROWS = ("sketch:compression=10", "sketch:compression=2.5", "signs", "diloco", "diloco-int4", "sparseloco:share=0.02")
BATCHES = ((4, 64), (8, 256))  # windows and their length
LAYERS, WIDTH, SYMBOLS, ROUNDS, REPEATS = 8, 320, 256, 3, 3


def worker(job: dict[str, Any]) -> None:
    """One rank: the CPU of inner steps at every batch, then that of rounds."""
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(ROOT))
    from desketch import Key
    from desketch.integrations.torch import SketchedOuter
    from desketch.tasks.gpt import Gpt
    from lm_bed import loss_of, parse, wire_of_row

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{job['folder']}/meet", rank=job["rank"], world_size=2)
    torch.manual_seed(0)
    model = Gpt(symbols=SYMBOLS, context=256, layers=LAYERS, width=WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    d = sum(p.numel() for p in model.parameters())

    def inner(windows: int, context: int) -> float:
        started = time.process_time()
        loss_of(model, torch.randint(SYMBOLS, (windows, context + 1))).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - started

    for batch in BATCHES:
        inner(*batch)
    name, settings = parse(job["row"])
    outer = None
    if name != "alone":
        outer = SketchedOuter(model, optimizer, key=Key(7), every=1, wire=wire_of_row(name, settings))
    steps: dict[tuple[int, int], list[float]] = {batch: [] for batch in BATCHES}
    rounds = []
    for _ in range(ROUNDS + 1):
        for batch, seconds in steps.items():
            seconds.append(inner(*batch))
        dist.barrier()
        started = time.process_time()
        if outer is not None:
            outer.step()
        rounds.append(time.process_time() - started)
    report = {
        "d": d,
        "inner": [statistics.median(seconds) for seconds in steps.values()],
        "round": statistics.median(rounds[1:]),  # the first compares arguments and makes M
        "copies": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / (4 * d),
    }
    Path(job["folder"], f"rank{job['rank']}.json").write_text(json.dumps(report), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def ranks(row: str) -> list[dict[str, Any]]:
    """What both ranks of a row report."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        orders = [json.dumps({"row": row, "rank": rank, "folder": folder}) for rank in range(2)]
        both = [subprocess.Popen([sys.executable, __file__, "--worker", order], env=environment) for order in orders]
        if any(process.wait() for process in both):
            raise SystemExit(f"{row}: a rank failed")
        return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(2)]


def measure(row: str) -> dict[str, Any]:
    """Both ranks of a row beside ranks that train alone."""
    turns = [(ranks("alone"), ranks(row)) for _ in range(REPEATS)]
    alone, reports = ([report for turn in turns for report in turn[side]] for side in (0, 1))
    middle = sorted(reports, key=lambda report: report["round"])[len(reports) // 2]
    shares = {
        f"{windows} x {context}": round(middle["round"] / (20 * inner), 4)
        for (windows, context), inner in zip(BATCHES, middle["inner"], strict=True)
    }
    return {
        "row": row,
        "d": middle["d"],
        "round_seconds": round(middle["round"], 4),
        "inner_seconds": [round(inner, 3) for inner in middle["inner"]],
        "share_of_20_steps": shares,
        "copies_of_w": round(_median(reports, "copies") - _median(alone, "copies"), 2),
    }


def _median(reports: list[dict[str, Any]], name: str) -> float:
    return statistics.median(report[name] for report in reports)


def main() -> None:
    """All rows, or the one rank that was asked for."""
    from desketch.core.files import write_durably

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(json.loads(args.worker))
    document = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    document["command"] = "python benchmarks/outer_cost.py"
    for row in args.rows:
        new = measure(row)
        document["rows"] = [old for old in document["rows"] if old["row"] != row] + [new]
        write_durably(args.out, json.dumps(document, indent=1) + "\n")
        print(json.dumps(new), flush=True)
    return None


if __name__ == "__main__":
    main()
