"""Tables of ``one_bit_codes.json``: what the one-bit codes cost in bias, variance and time."""

from __future__ import annotations

from typing import Any

ORDER = ("plain", "two passes", "shipped", "dithered")


def comparison(result: dict[str, Any]) -> str:
    """One line per size; every code's worst bias, its omega and its microseconds."""
    lines = [
        "| b | " + " | ".join(f"{name}: bias, ω, µs" for name in ORDER) + " |",
        "|---|" + "---|" * len(ORDER),
    ]
    found = {(row["b"], row["code"]): row for row in result["rows"]}
    for b in sorted({size for size, code in found if code == "plain"}):
        cells = (found[b, name] for name in ORDER)
        lines.append(f"| {b} | " + " | ".join(_cell(row) for row in cells) + " |")
    return "\n".join(lines)


def shipped(result: dict[str, Any]) -> str:
    """The shipped code at every size that was measured."""
    rows = [row for row in result["rows"] if row["code"] == "shipped"]
    lines = ["| b | worst bias | resolved to | on |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['b']} | {row['bias']:.1%} | {row['error']:.1%} | {row['vector']} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    seen = 2 * row["error"]  # the worst of eleven vectors without any bias shows about that much
    bias = f"{row['bias']:.1%}" if row["bias"] > seen else f"< {seen:.1%}"
    return f"{bias}, {row['omega']:.2f}, {row['microseconds']:.0f}"
