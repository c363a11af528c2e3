"""Draw the README's picture from ``benchmarks/results/bytes_to_accuracy.json`` (part of ``make docs``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "benchmarks" / "results" / "bytes_to_accuracy.json"
TARGET = ROOT / "docs" / "img" / "bytes_to_accuracy.svg"
STYLE = {"svg.hashsalt": "desketch", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def draw(part: dict[str, Any]) -> Figure:
    """One bar a method: bytes of one client until the target accuracy is reached and held, on a log axis."""
    rows = sorted((row for row in part["methods"] if row["bytes"]), key=lambda row: row["bytes"])
    figure = Figure(figsize=(7.2, 0.36 * len(rows) + 1.1), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for y, row in enumerate(rows):
        ours = row["method"] == "desketch"
        axes.barh(y, row["bytes"], color="#e07b39" if ours else "#8fb3d1")
        span = [[row["bytes"] - row["bytes_low"]], [row["bytes_high"] - row["bytes"]]]
        axes.errorbar(row["bytes"], y, xerr=span, color="#444444", linewidth=1, capsize=2)
        label = f" {_human(row['bytes'])}, {row['rounds']:g} rounds"
        axes.text(row["bytes_high"] * 1.1, y, label, va="center", fontsize=8.5, color="#444444")
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.set_xscale("log")
    axes.set_xlim(rows[0]["bytes"] / 4, rows[-1]["bytes"] * 60)
    axes.set_xlabel(f"bytes per client, up and down, until {part['target']:.0%} is reached and held")
    return figure


def _human(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def main() -> None:
    """Write the picture; the same results give the same file."""
    part = json.loads(SOURCE.read_text(encoding="utf-8"))["parts"]["headline"]
    TARGET.parent.mkdir(exist_ok=True)
    with rc_context(STYLE):
        draw(part).savefig(TARGET, format="svg", metadata={"Date": None})
    print(f"drawn: {TARGET.relative_to(ROOT).as_posix()}")


if __name__ == "__main__":
    main()
