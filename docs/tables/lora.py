"""Table of docs/transformers.md from benchmarks/results/lora.json."""

from __future__ import annotations

from typing import Any


def rows(result: dict[str, Any]) -> str:
    """One row a method, from few bytes to many: bytes and losses on the second text."""
    lines = ["| method | bytes a worker | bytes a parameter | validation | test |", "|---|---:|---:|---:|---:|"]
    lines.append(f"| before tuning | | | | {next(iter(result['untuned'].values())):.3f} |")
    for row in sorted(result["rows"], key=lambda row: float(row["bytes"])):
        size = f"{row['bytes']:,} | {row['bytes_per_parameter']:.3g}"
        lines.append(f"| {row['row']} | {size} | {row['validation']:.3f} | {row['test']:.3f} |")
    return "\n".join(lines)
