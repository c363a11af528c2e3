"""The kernels of an earlier version and of this one, in turn on one machine, which another machine's table cannot tell.

    python benchmarks/kernels_before.py EARLIER/desketch .venv/bin/desketch --json results/kernels_before.json

Every turn is `desketch bench kernels` of both, each in a process of its own; a row is the median over turns of its
reads after by its reads before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Any


def main() -> None:
    """Measure both, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("before", type=Path, help="the earlier version's desketch command")
    parser.add_argument("after", type=Path, help="this version's")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, required=True)
    asked = parser.parse_args()
    turns = []
    for _ in range(asked.turns):
        before, after = (_kernels(command, asked.repeats) for command in (asked.before, asked.after))
        turns.append((before, after))
        result = {"command": "benchmarks/kernels_before.py", "turns": len(turns), **_summary(turns)}
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["rows"]:
        print(f"{row['item']:34} {row['before']:8.3f} {row['after']:8.3f} {row['ratio']:6.2f}")


def _kernels(command: Path, repeats: int) -> dict[str, Any]:
    asked = [str(command), "bench", "kernels", "--repeats", str(repeats), "--json", "-"]
    done: dict[str, Any] = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
    return done


def _summary(turns: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    rows = []
    for item in [row["item"] for row in turns[0][1]["kernels"]]:
        pairs = [tuple(_reads(part, item) for part in turn) for turn in turns]
        rows.append(
            {
                "item": item,
                "before": median(b for b, _ in pairs),
                "after": median(a for _, a in pairs),
                "ratio": median(a / b for b, a in pairs),
            }
        )
    last = turns[-1][1]
    return {"machine": last["machine"], "isa": last["isa"], "d": last["d"], "b": last["b"], "rows": rows}


def _reads(result: dict[str, Any], item: str) -> float:
    return next(float(row["reads"]) for row in result["kernels"] if row["item"] == item)


if __name__ == "__main__":
    main()
