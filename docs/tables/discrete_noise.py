"""Tables of ``discrete_noise.json``: what exact noise costs."""

from __future__ import annotations

from typing import Any


def costs(result: dict[str, Any]) -> str:
    """One line per size of a message: CPU time of the discrete and the float Gaussian, random bytes."""
    lines = ["| numbers | discrete, ms | float, ms | random bytes a number |", "|---|---|---|---|"]
    for row in result["rows"]:
        cells = f"{row['discrete_ms']:.1f} | {row['float_ms']:.1f} | {row['bytes_per_number']:.0f}"
        lines.append(f"| {row['b']:,} | {cells} |")
    return "\n".join(lines)
