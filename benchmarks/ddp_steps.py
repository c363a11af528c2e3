"""Seconds per DDP step over thin wires: plain, fp16 and PowerSGD hooks against the sketch hook, in one run.

``python benchmarks/ddp_steps.py`` (root; see netbed.py) writes ``benchmarks/results/ddp_steps.json``.  Two ranks in two
namespaces train an MLP; within one start of the ranks the hooks take turns, step by step, so that all of them see the
same load of the machine; figures are medians over steps, measured after the buckets were rebuilt.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from netbed import Host, bed, missing

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results" / "ddp_steps.json"
RATES = {"20 Mbit/s": "20mbit", "200 Mbit/s": "200mbit", "unshaped": None}
STEPS = {"20 Mbit/s": 8, "200 Mbit/s": 16, "unshaped": 24}
WIDTHS = (784, 1024, 256, 10)
POWER_RANKS = (1, 4, 16)


def model() -> Any:
    """An MLP of about a million weights, in one bucket: PowerSGD's hook on gloo is not safe with several."""
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return DistributedDataParallel(nn.Sequential(*layers[:-1]), bucket_cap_mb=25)


def numbers() -> int:
    """d, the number of weights."""
    return sum((a + 1) * b for a, b in itertools.pairwise(WIDTHS))


def power_numbers(rank: int) -> int:
    """What PowerSGD sends per step: both factors of the matrices it compresses, everything else plain."""
    total = 0
    for a, b in itertools.pairwise(WIDTHS):
        factors = (a + b) * min(rank, a, b)
        total += b + (factors if factors * 2 < a * b else a * b)
    return total


def hooks() -> dict[str, tuple[Any, Any, int]]:
    """Map a name to (state, hook, bytes of payload per step)."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    from desketch.integrations.torch import SketchState, sketch_hook
    from desketch.keys import Key

    d = numbers()
    table: dict[str, tuple[Any, Any, int]] = {
        "plain": (None, default_hooks.allreduce_hook, 4 * d),
        "fp16": (None, default_hooks.fp16_compress_hook, 2 * d),
    }
    for c in (10, 50, 100):
        table[f"sketch {c}x"] = (SketchState(compression=c, key=Key(1)), sketch_hook, 4 * -(-d // c))
    table["sketch 10x f16"] = (SketchState(compression=10, key=Key(1), codec="f16"), sketch_hook, 2 * -(-d // 10))
    table["srht 10x"] = (SketchState(compression=10, key=Key(1), family="srht"), sketch_hook, 4 * -(-d // 10))
    for r in POWER_RANKS:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=r, start_powerSGD_iter=2)
        table[f"powersgd r={r}"] = (state, powerSGD_hook.powerSGD_hook, 4 * power_numbers(r))
        equal = SketchState(compression=d / power_numbers(r), key=Key(1))
        table[f"sketch as r={r}"] = (equal, sketch_hook, 4 * -(-d * power_numbers(r) // d))
    return table


def worker(rank: int, address: str, steps: int, out: Path) -> None:
    """One rank: the hooks take turns for ``steps`` rounds after three of warm-up."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29511", rank=rank, world_size=2)
    torch.manual_seed(0)
    x, y = torch.randn(64, WIDTHS[0]), torch.randint(WIDTHS[-1], (64,))
    table, parallel = hooks(), {}
    for name, (state, hook, _) in table.items():
        parallel[name] = model()
        parallel[name].register_comm_hook(state, hook)
    seconds: dict[str, list[float]] = {name: [] for name in table}
    for step in range(3 + steps):
        for name in table:
            dist.barrier()
            start = time.perf_counter()
            torch.nn.functional.cross_entropy(parallel[name](x), y).backward()
            if step >= 3:
                seconds[name].append(time.perf_counter() - start)
            parallel[name].zero_grad()
    if rank == 0:
        out.write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


def measure(label: str, hosts: list[Host]) -> dict[str, list[float]]:
    """Start both ranks in their namespaces and read rank 0's times."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        ranks = []
        for rank, host in enumerate(hosts):
            argv = [sys.executable, __file__, "--rank", str(rank), "--address", hosts[0].address]
            argv += ["--steps", str(STEPS[label]), "--out", str(out)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": host.interface}
            ranks.append(subprocess.Popen(host.command(argv), env=environment))
        try:
            codes = [process.wait(timeout=1800) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        if any(codes):
            raise SystemExit(f"a rank failed: exit codes {codes}")
        return dict(json.loads(out.read_text()))


def summary(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """One row a hook: median seconds, payload, and how many times faster than plain."""
    plain = statistics.median(seconds["plain"])
    payload = {name: size for name, (_, _, size) in hooks().items()}
    return [
        {
            "hook": name,
            "seconds": round(statistics.median(times), 5),
            "payload_bytes": payload[name],
            "times_plain": round(plain / statistics.median(times), 2),
        }
        for name, times in seconds.items()
    ]


def report(rows: dict[str, list[dict[str, Any]]]) -> None:
    """Print the tables and the marks."""
    from rich.console import Console
    from rich.table import Table

    for label, cells in rows.items():
        table = Table("hook", "payload, kB", "s per step", "times plain", title=label)
        for cell in cells:
            table.add_row(
                cell["hook"], f"{cell['payload_bytes'] / 1e3:.1f}", f"{cell['seconds']:.4f}", f"{cell['times_plain']}"
            )
        Console().print(table)


def main() -> None:
    """Parse the command line: no arguments for the whole benchmark; the rest is how it starts its own ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="*", default=list(RATES), choices=list(RATES))
    for name in ("--rank", "--steps"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        worker(args.rank, args.address, args.steps, args.out)
        return
    if reason := missing():
        print(f"skipped: {reason}")
        return
    rows = json.loads(RESULTS.read_text())["rates"] if RESULTS.exists() else {}
    for label in args.rates:
        with bed(2, RATES[label]) as hosts:
            rows[label] = summary(measure(label, hosts))
        document = {"command": "python benchmarks/ddp_steps.py", "weights": numbers(), "ranks": 2, "rates": rows}
        RESULTS.parent.mkdir(exist_ok=True)
        partial = RESULTS.with_suffix(".tmp")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(RESULTS)
    report({label: rows[label] for label in args.rates})


if __name__ == "__main__":
    main()
