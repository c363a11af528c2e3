"""What a round of the outer step costs a rank: CPU beside 20 inner steps, and memory, on a GPT of 10^7 parameters.

    python benchmarks/outer_cost.py

Two gloo ranks on this machine, one thread each.  CPU is the process' own, all threads; inner steps and rounds take
turns, medians of three runs.  Memory is how far the process' peak lies above that of a rank that takes the same steps
alone, in copies of w, at the smaller batch, whose activations hide least.  It has runs of its own, in which glibc gives
freed memory back at once (MALLOC_MMAP_THRESHOLD_; otherwise the peak varies by half a copy with what the allocator
keeps), and in which all ranks have first taken rounds of a small model: what the outer step's code and libraries take
does not grow with w, and is told apart.
"""

from __future__ import annotations

import argparse
import gc
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
ROWS = (
    "sketch:compression=10",
    "sketch:compression=2.5",
    "sketch:compression=1.875,codec=trellis2,codec_down=trellis1",
    "signs",
    "diloco",
    "diloco-int4",
    "sparseloco:share=0.02",
)
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
    name, settings = parse(job["row"])

    def bed(layers: int, *, alone: bool) -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        model = Gpt(symbols=SYMBOLS, context=256, layers=layers, width=WIDTH)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        wire = wire_of_row(name, dict(settings))
        outer = None if alone else SketchedOuter(model, optimizer, key=Key(7), every=1, wire=wire)
        return model, optimizer, outer

    def inner(model: Any, optimizer: Any, windows: int, context: int) -> float:
        started = time.process_time()
        loss_of(model, torch.randint(SYMBOLS, (windows, context + 1))).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - started

    def loaded(*, alone: bool) -> int:
        """Bytes that remain of the code that a small model's rounds have run."""
        model, optimizer, outer = bed(1, alone=alone)
        for _ in range(2):
            inner(model, optimizer, 1, 8)
            if outer is not None:
                outer.step()
        del model, optimizer, outer
        gc.collect()
        return _resident()

    code = -loaded(alone=True) + loaded(alone=False)
    model, optimizer, outer = bed(LAYERS, alone=job["alone"])
    d = sum(p.numel() for p in model.parameters())
    batches = BATCHES[:1] if job["memory"] else BATCHES
    for batch in batches:
        inner(model, optimizer, *batch)
    steps: dict[tuple[int, int], list[float]] = {batch: [] for batch in batches}
    rounds = []
    for _ in range(ROUNDS + 1):
        for batch, seconds in steps.items():
            seconds.append(inner(model, optimizer, *batch))
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
        "code": code,
    }
    Path(job["folder"], f"rank{job['rank']}.json").write_text(json.dumps(report), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _resident() -> int:
    """Bytes of memory this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ranks(row: str, *, alone: bool = False, memory: bool = False) -> list[dict[str, Any]]:
    """What both ranks of a row report; ``alone`` leaves out its rounds."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if memory:
        environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 16)
    with tempfile.TemporaryDirectory() as folder:
        job = {"row": row, "folder": folder, "alone": alone, "memory": memory}
        orders = [json.dumps({**job, "rank": rank}) for rank in range(2)]
        both = [subprocess.Popen([sys.executable, __file__, "--worker", order], env=environment) for order in orders]
        if any(process.wait() for process in both):
            raise SystemExit(f"{row}: a rank failed")
        return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(2)]


def measure(row: str) -> dict[str, Any]:
    """Both ranks of a row: CPU, then memory beside ranks that train alone."""
    reports = [report for _ in range(REPEATS) for report in ranks(row)]
    alone, together = ranks(row, alone=True, memory=True), ranks(row, memory=True)
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
        "copies_of_w": round(_median(together, "copies") - _median(alone, "copies"), 2),
        "code_megabytes": round(_median(together, "code") / 1e6, 1),
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
