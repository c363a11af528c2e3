"""Table of docs/training.md from benchmarks/results/partial_momentum.json."""

from __future__ import annotations

from statistics import fmean
from typing import Any


def table(result: dict[str, Any]) -> str:
    """One row a share of the clients, one column a beta: validation accuracy in the mean, and seed by seed."""
    betas = sorted({cell["beta"] for cell in result["cells"]})
    lines = [
        f"| of {result['clients']} clients, asked in a round | {' | '.join(f'beta {beta:g}' for beta in betas)} |",
        "|---" * (len(betas) + 1) + "|",
    ]
    for fraction in sorted({cell["fraction"] for cell in result["cells"]}):
        row = {cell["beta"]: cell["seeds"] for cell in result["cells"] if cell["fraction"] == fraction}
        shown = [_late(row[beta]) if beta in row else "" for beta in betas]
        lines.append(f"| {round(fraction * result['clients'])} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _late(seeds: list[dict[str, float]]) -> str:
    values = [100 * seed["late"] for seed in seeds]
    return f"{fmean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"
