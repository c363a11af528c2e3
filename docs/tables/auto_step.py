"""Tables of docs/training.md from benchmarks/results/auto_step.json."""

from __future__ import annotations

from typing import Any


def gaps(result: dict[str, Any]) -> str:
    """One row per model and partition, one column per compression: automatic accuracy and its gap to the grid."""
    cells = {_place(cell): cell for cell in result["cells"] if cell["setting"] == "plain"}
    compressions = sorted({cell["compression"] for cell in cells.values()})
    lines = [
        "| model, partition | seeds | " + " | ".join(f"{c}x: auto, tuned, gap" for c in compressions) + " |",
        "|---|---:|" + "---:|" * len(compressions),
    ]
    for model, partition in dict.fromkeys((model, partition) for model, partition, _ in cells):
        row = [cells.get((model, partition, c)) for c in compressions]
        seeds = max(cell["seeds"] for cell in row if cell)
        lines.append(f"| {model}, {partition} | {seeds} | " + " | ".join(map(_got, row)) + " |")
    return "\n".join([*lines, "", _verdict(list(cells.values()))])


def settings(result: dict[str, Any]) -> str:
    """The same for one bit, partial participation and private noise."""
    lines = ["| setting | model, partition, compression | seeds | auto, tuned, gap |", "|---|---|---:|---:|"]
    cells = [cell for cell in result["cells"] if cell["setting"] != "plain"]
    for cell in cells:
        where = f"{cell['model']}, {cell['partition']}, {cell['compression']}x"
        lines.append(f"| {cell['setting']} | {where} | {cell['seeds']} | {_got(cell)} |")
    return "\n".join([*lines, "", _verdict(cells)])


def _place(cell: dict[str, Any]) -> tuple[str, str, int]:
    return cell["model"], cell["partition"], cell["compression"]


def _got(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "not measured"
    gap = f"{cell['gap']:+.2f}"
    return f"{cell['auto']:.1f}, {cell['best']:.1f}, {f'**{gap}**' if cell['gap'] > 1 else gap}"


def _verdict(cells: list[dict[str, Any]]) -> str:
    within = sum(cell["gap"] <= 1 for cell in cells)
    above = sum(cell["gap"] < 0 for cell in cells)
    return (
        f"Within one point of the tuned step in {within} of {len(cells)} cells, above it in {above}; "
        f"largest gap {max(cell['gap'] for cell in cells):+.2f}."
    )
