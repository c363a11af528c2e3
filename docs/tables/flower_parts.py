"""Tables of docs/flower.md from benchmarks/results/flower_parts.json."""

from __future__ import annotations

from typing import Any

SECONDS = {
    "startup": "start-up of the ClientApp",
    "loading": "loading data and model",
    "steps": "local steps",
    "encode": "sketch, wire and replica; or arrays (plain: and importing torch)",
    "flower": "Flower: queues, polls, transport",
    "server": "server: average, checkpoint",
    "round": "**round**",
    "first_round": "first round",
}
KILOBYTES = {
    "bytes_up": "frames or arrays, up",
    "bytes_down": "frames or arrays, down",
    "interface_up": "SuperLink's interface, up",
    "interface_down": "SuperLink's interface, down",
}


def parts(result: dict[str, Any]) -> str:
    """Seconds and kilobytes of a round, a column a method."""
    methods = result["methods"]
    lines = [_row("a round", list(methods)), "|---|" + "---:|" * len(methods)]
    for name, label in SECONDS.items():
        lines.append(_row(f"{label}, s", [f"{method[name]:.2f}" for method in methods.values()]))
    for name, label in KILOBYTES.items():
        lines.append(_row(f"{label}, kB", [f"{method[name] / 1e3:,.1f}" for method in methods.values()]))
    lines += ["", f"Two cores, load average {result['load_average']}, these processes included."]
    return "\n".join(lines)


def _row(label: str, cells: list[str]) -> str:
    return f"| {label} | " + " | ".join(cells) + " |"
