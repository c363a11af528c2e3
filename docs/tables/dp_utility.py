"""Tables of ``dp_utility.json``: accuracy and bytes at equal epsilon."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

_BASELINES = {"example": "DP-SGD", "client": "DP-FedAvg"}
_BEFORE = "noise before sketch"


def accuracy(result: dict[str, Any]) -> str:
    """One line per task, unit and epsilon that has rows: mean test accuracy in percent, spread, number of seeds."""
    head = "| task | unit | epsilon | unsketched DP | sketch-clip, 30x | noise before, 30x | gap, points |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for task, unit, epsilon in _settings(result):
        found = {
            name: [row["accuracy"] for row in result["rows"] if _is(row, task, unit, epsilon, name)]
            for name in (_BASELINES[unit], f"sketch-clip, {unit}", _BEFORE)
        }
        plain, ours, before = found.values()
        gap = f"{100 * (mean(ours) - mean(plain)):+.1f}" if plain and ours else "-"
        cells = " | ".join(_cell(values) for values in (plain, ours, before))
        lines.append(f"| {task} | {unit} | {epsilon:g} | {cells} | {gap} |")
    return "\n".join(lines)


def traffic(result: dict[str, Any]) -> str:
    """One line per task and method: megabytes of all clients together, up and down."""
    lines = ["| task | method | rounds | up, MB | down, MB |", "|---|---|---|---|---|"]
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in result["rows"]):
        rows = [row for row in result["rows"] if (row["task"], row["method"]) == (task, method)]
        up, down = (mean(row[name] for row in rows) / 1e6 for name in ("bytes_up", "bytes_down"))
        lines.append(f"| {task} | {method} | {rows[0]['rounds']} | {up:,.2f} | {down:,.2f} |")
    return "\n".join(lines)


def _settings(result: dict[str, Any]) -> list[tuple[str, str, float]]:
    return list(dict.fromkeys((row["task"], row["unit"], row["epsilon"]) for row in result["rows"]))


def _is(row: dict[str, Any], task: str, unit: str, epsilon: float, method: str) -> bool:
    return (row["task"], row["unit"], row["epsilon"], row["method"]) == (task, unit, epsilon, method)


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{spread} ({len(values)})"
