"""What the exact discrete Gaussian costs: CPU time and random bytes of one message.

    python benchmarks/discrete_noise.py --json benchmarks/results/discrete_noise.json

CPU time of one process, medians over the repeats; beside it the float Gaussian of the same entropy, interleaved.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from desketch.privacy.grid import Grid
from desketch.privacy.noise import OsEntropy

SIZES = (424, 1696, 13_568, 54_000)  # numbers of a message


class Counted(OsEntropy):
    """The operating system's bytes, counted."""

    used = 0

    def draw(self, size: int) -> bytes:
        """Return them."""
        self.used += size
        return super().draw(size)


def measure(b: int, s: int, repeats: int) -> dict[str, float]:
    """Return medians for one message of b numbers."""
    entropy = Counted()
    discrete, normal = [], []
    for _ in range(repeats):
        start = time.process_time()
        entropy.discrete_normal(b, s=s)
        middle = time.process_time()
        OsEntropy().normal(b, std=1.0)
        discrete.append(middle - start)
        normal.append(time.process_time() - middle)
    return {
        "b": b,
        "s": s,
        "discrete_ms": round(1e3 * statistics.median(discrete), 2),
        "float_ms": round(1e3 * statistics.median(normal), 2),
        "bytes_per_number": round(entropy.used / (b * repeats), 1),
    }


def main() -> None:
    """Measure every size and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=31)
    arguments = parser.parse_args()
    s = Grid.build(1.0, 1.0).noise
    rows = [measure(b, s, arguments.repeats) for b in SIZES]
    partial = arguments.json.with_suffix(".partial")
    partial.write_text(json.dumps({"command": "python benchmarks/discrete_noise.py", "rows": rows}, indent=2) + "\n")
    os.replace(partial, arguments.json)


if __name__ == "__main__":
    main()
