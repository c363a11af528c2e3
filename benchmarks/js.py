"""An SRHT in the JavaScript client beside the Python kernels, in one run.

    python benchmarks/js.py --json benchmarks/results/js.json

CPU milliseconds of one thread: medians of 41 calls after 40 to warm up, in Node (``npm run bench`` in ``clients/js``)
and in Python in turn, then the median over the repeats.  Drawing R (hashes and rows) is a column of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import desketch as ds

CLIENT = Path(__file__).parents[1] / "clients" / "js"


def median_ms(call: Callable[[int], object]) -> float:
    """Return the CPU time of one call."""
    times = []
    for i in range(81):
        start = time.process_time()
        call(i)
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times[40:])


def python_row(d: int, b: int) -> dict[str, float]:
    """Return what ``bench/srht.mjs`` measures, of the compiled kernels."""
    key = ds.Key(2023)
    R = ds.draw("srht", d=d, b=b, key=key)
    g = np.sin(np.arange(d, dtype=np.float64) ** 2).astype(np.float32)
    s = R.sketch(g)
    fresh = (ds.draw("srht", d=d, b=b, key=key.fold_in("round", t)) for t in range(81))
    return {
        "draw_ms": median_ms(lambda _: next(fresh)),
        "sketch_ms": median_ms(lambda _: R.sketch(g)),
        "desketch_ms": median_ms(lambda _: R.desketch(s)),
    }


def main() -> None:
    """Measure both in turn and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    pairs = []
    for _ in range(arguments.repeats):
        done = subprocess.run(["node", "bench/srht.mjs"], cwd=CLIENT, check=True, capture_output=True, text=True)
        node = json.loads(done.stdout)
        pairs.append([(row, python_row(row["d"], row["b"])) for row in node["rows"]])
    rows = []
    for measured in zip(*pairs, strict=True):
        row = {name: measured[0][0][name] for name in ("d", "b")}
        for name in ("draw_ms", "sketch_ms", "desketch_ms"):
            row[f"node_{name}"] = statistics.median(js[name] for js, _ in measured)
            row[f"python_{name}"] = statistics.median(py[name] for _, py in measured)
        rows.append(row)
    result = {"node": node["node"], "repeats": arguments.repeats, "rows": rows}
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
