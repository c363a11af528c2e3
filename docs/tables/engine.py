"""Table of docs/training.md from benchmarks/results/engine.json."""

from __future__ import annotations

from typing import Any


def marks(result: dict[str, Any]) -> str:
    """Both sides, the two marks, and whether they are reached."""
    ratio, share, wanted = result["ratio"], result["sketch_wire_share"], result["marks"]
    shape = f"{result['users']:,} users, cohort {result['cohort']}, {result['local_steps']} local steps"
    size = f"batch {result['batch']}, d = {result['d']:,}, b = {result['b']:,}, {result['codec']}"
    return "\n".join(
        [
            f"| {shape}, {size} | measured | mark | reached |",
            "|---|---:|---:|---|",
            f"| plain PyTorch loop, CPU s/round | {result['plain_loop_cpu_seconds']:.3f} | | |",
            f"| desketch, CPU s/round | {result['desketch_cpu_seconds']:.3f} | | |",
            f"| ratio | {ratio:.2f} | {wanted['ratio']} | {_yes(ratio <= wanted['ratio'])} |",
            f"| sketch and wire, share of a round | {share:.1%} | {wanted['sketch_wire_share']:.0%} "
            f"| {_yes(share <= wanted['sketch_wire_share'])} |",
        ]
    )


def _yes(reached: bool) -> str:
    return "yes" if reached else "no"
