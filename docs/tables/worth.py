"""Table of docs/training.md from benchmarks/results/worth.json."""

from __future__ import annotations

from typing import Any


def table(result: dict[str, Any]) -> str:
    """One row a run: validation accuracy alone and together, the gain, and the verdict."""
    lines = [
        f"| `{result['command']}` | rounds | alone | together | gain | signal, step share | advice |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for run in result["runs"]:
        found = run["alone"]
        shares = f"{100 * run['signal_share']:.2g} %, {100 * run['step_share']:.2g} %"
        advice = "communicate" if found["pays"] else "**do not sketch here**"
        lines.append(
            f"| {run['run']} | {found['round']} | {found['alone']:.1%} | {found['together']:.1%} | {found['gain']:.0%} "
            f"| {shares} | {advice} |"
        )
    return "\n".join(lines)
