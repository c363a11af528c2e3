"""Tables of ``per_example.json``: what clipping every example costs."""

from __future__ import annotations

from typing import Any


def ratios(result: dict[str, Any]) -> str:
    """One line per model: book-keeping and vmap as multiples of a plain backward pass."""
    lines = ["| model | d | book-keeping | vmap |", "|---|---|---|---|"]
    for row in result["rows"]:
        lines.append(f"| {row['model']} | {row['d']:,} | {row['book_keeping']:.2f}x | {row['vmap']:.1f}x |")
    return "\n".join(lines)
