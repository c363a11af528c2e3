"""Table of docs/transformers.md from benchmarks/results/outer_cost.json."""

from __future__ import annotations

from typing import Any


def rows(result: dict[str, Any]) -> str:
    """One row a method: CPU of a round, beside 20 inner steps of two batches, and memory."""
    batches = list(result["rows"][0]["share_of_20_steps"])
    lines = [
        "| method | CPU of a round, ms |"
        + "".join(f" of 20 steps of {b} |" for b in batches)
        + " memory, copies of w |"
    ]
    lines.append("|---|---:|" + "---:|" * len(batches) + "---:|")
    for row in result["rows"]:
        shares = "".join(f" {row['share_of_20_steps'][b]:.1%} |" for b in batches)
        lines.append(f"| {row['row']} | {1e3 * row['round_seconds']:.0f} |{shares} {row['copies_of_w']:.2f} |")
    return "\n".join(lines)
