"""A sentence of the README from benchmarks/results/kernels_repeats.json: runs of the kernels on a busier host."""

from __future__ import annotations

from typing import Any


def missed(result: dict[str, Any]) -> str:
    """What each further run missed."""
    runs = [
        f"with a read of {run['read_ms']:.1f} ms "
        + ", ".join(f"{mark['item']} {mark['got']:.3g} {mark['unit']}" for mark in run["marks"] if not mark["reached"])
        for run in sorted(result["runs"], key=lambda run: float(run["read_ms"]))
    ]
    return (
        f"The table is the run with the shortest read of {len(runs) + 1}. The others missed, " + "; ".join(runs) + "."
    )
