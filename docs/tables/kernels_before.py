"""A sentence of docs/performance.md from benchmarks/results/kernels_before.json: an earlier version's kernels beside these."""

from __future__ import annotations

from typing import Any


def worst(result: dict[str, Any]) -> str:
    """The rows that are furthest from what they were."""
    rows = sorted(result["rows"], key=lambda row: float(row["ratio"]))
    low, high = rows[0], rows[-1]
    slower = [f"{row['item']} {row['ratio']:.2f}" for row in rows if row["ratio"] > 1.05]
    return (
        f"On another machine ({result['machine']['cpu']}, {result['isa']}, load {result['machine']['load']:.1f}; medians of {result['turns']} turns) the "
        f"{len(rows)} rows take {low['ratio']:.2f} ({low['item']}) to {high['ratio']:.2f} ({high['item']}) of what the kernels before "
        f"`desketch bench scale` took; above 1.05: {', '.join(slower) or 'none'}."
    )
