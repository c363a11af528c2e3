"""Table of docs/transformers.md from benchmarks/results/federate_gpt.json."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, stdev
from typing import Any

NAMES = {  # the server's step, the weights a tensor
    "alone": ("**alone, nothing sent**", ""),
    "learned": ("learned", "from clients (the default)"),
    "learned-plain": ("learned", "1"),
    "open": ("known in advance", "from clients"),
    "open-plain": ("known in advance", "1"),
}


def rows(result: dict[str, Any]) -> str:
    """The server's step, weights, compression, bytes and loss, means over the seeds."""
    cells: dict[tuple[float, str], list[dict[str, Any]]] = defaultdict(list)
    for row in result["rows"]:
        cells[row["compression"] or 0.0, row["step"]].append(row)
    lines = [
        "| server step | weights a tensor | compression | bytes a parameter | validation | seeds |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (times, name), cell in sorted(cells.items(), key=lambda item: (item[0][0], _place(item[0][1]))):
        losses = [row["validation"] for row in cell]
        spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
        step, weights = NAMES.get(name) or (f"fixed, {name.removeprefix('fixed-')}", "from clients")
        lines.append(
            f"| {step} | {weights} | {f'{times:g}x' if times else ''} | {cell[0]['bytes_per_parameter']:.3g} "
            f"| {fmean(losses):.3f}{spread} | {len(losses)} |"
        )
    return "\n".join(lines)


def _place(name: str) -> tuple[int, str]:
    """Fixed steps come last, from small to large."""
    return (list(NAMES).index(name) if name in NAMES else len(NAMES)), name
