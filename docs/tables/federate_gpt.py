"""Table of docs/transformers.md from benchmarks/results/federate_gpt.json."""

from __future__ import annotations

from typing import Any

NAMES = {"alone": "**alone, nothing sent**", "learned": "learned (the default)", "open": "known in advance"}


def rows(result: dict[str, Any]) -> str:
    """The server's step, compression, bytes and loss."""
    lines = ["| server step | compression | rounds | bytes a parameter | validation |", "|---|---:|---:|---:|---:|"]
    for row in result["rows"]:
        compression = f"{row['compression']:g}x" if row["compression"] else ""
        lines.append(
            f"| {NAMES[row['step']]} | {compression} | {row['rounds']} | {row['bytes_per_parameter']:.3g} | "
            f"{row['validation']:.3f} |"
        )
    return "\n".join(lines)
