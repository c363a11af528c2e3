"""Tables of ``js.json``: the client in another language beside the kernels."""

from __future__ import annotations

from typing import Any


def srht(result: dict[str, Any]) -> str:
    """One line per size: CPU milliseconds of drawing, sketching and de-sketching."""
    lines = ["| d | b | draw: Node, Python | R g: Node, Python | Rᵀ s: Node, Python |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        cells = [
            f"{row[f'node_{name}_ms']:.1f}, {row[f'python_{name}_ms']:.2f} ms"
            for name in ("draw", "sketch", "desketch")
        ]
        lines.append(f"| {row['d']:,} | {row['b']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
