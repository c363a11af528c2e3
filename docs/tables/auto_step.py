"""Table of docs/training.md from benchmarks/results/auto_step.json."""

from __future__ import annotations

from typing import Any

MARK = 1.0


def gaps(rows: list[dict[str, Any]]) -> str:
    """One row a cell, and how many reach the mark."""
    lines = [
        "| model | partition | d/b | auto, % | best of the grid, % (eta) | gap, points |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['partition']} | {row['compression']} | {row['auto']:.2f} "
            f"| {row['best']:.2f} ({row['best_eta']:.3g}) | {row['gap']:+.2f} |"
        )
    reached = sum(row["gap"] <= MARK for row in rows)
    worst = max(row["gap"] for row in rows)
    mean = sum(row["gap"] for row in rows) / len(rows)
    lines += [
        "",
        f"{reached} of {len(rows)} measured cells (of 24) within {MARK:g} point; mean {mean:+.2f}, worst {worst:+.2f}.",
    ]
    return "\n".join(lines)
