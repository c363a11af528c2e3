"""A sentence of docs/performance.md from benchmarks/results/kernels_before.json: earlier kernels beside these."""

from __future__ import annotations

from typing import Any


def worst(result: dict[str, Any]) -> str:
    """The rows that are furthest from what they were."""
    rows = sorted(result["rows"], key=lambda row: float(row["ratio"]))
    low, high, machine = rows[0], rows[-1], result["machine"]
    slower = [f"{row['item']} {row['ratio']:.2f}" for row in rows if row["ratio"] > 1.05]
    return (
        f"On another machine ({machine['cpu']}, {result['isa']}, load {machine['load']:.1f}; turns: "
        f"{result['turns']}) the {len(rows)} rows take {low['ratio']:.2f} ({low['item']}) to "
        f"{high['ratio']:.2f} ({high['item']}) of what the kernels before `desketch bench scale` took; above 1.05: "
        f"{', '.join(slower) or 'none'}."
    )
