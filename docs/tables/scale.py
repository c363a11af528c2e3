"""Table of docs/performance.md from benchmarks/results/scale.json."""

from __future__ import annotations

from typing import Any

from desketch.bench.scale import CASES, UNITS, verdicts


def marks(result: dict[str, Any]) -> str:
    """Every case with its marks; those that were missed are in bold."""
    lines = ["| case | got | mark | reached | load |", "|---|---:|---:|---|---:|"]
    for name in CASES:
        row = result["cases"].get(name, {})
        for figure, got, mark, reached in verdicts(name, row):
            shown = row.get("skipped") or row.get("failed") or "not measured"
            shown = shown if got is None else f"{got:.3g} {UNITS[figure]}"
            answer = {True: "yes", False: "**no**", None: "-"}[reached]
            lines.append(f"| {CASES[name].title} | {shown} | {mark:g} | {answer} | {row.get('load', '')} |")
    return "\n".join(lines)
