"""Tables of ``thin_codes.json``: codes of a bit or less a number beside the bound of any code."""

from __future__ import annotations

from typing import Any


def comparison(result: dict[str, Any]) -> str:
    """One line a code and size."""
    lines = [
        "| b | code | bits a number | bytes | energy kept | any code at most | ω | write, read, µs |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        times = f"{row['encode_microseconds']:,.0f}, {row['decode_microseconds']:,.0f}"
        lines.append(
            f"| {row['b']:,} | `{row['codec']}` | {row['bits']:.3g} | {row['bytes']:,} | {row['kept']:.3f} "
            f"| {row['bound']:.3f} | {row['omega']:.2f} | {times} |"
        )
    return "\n".join(lines)
