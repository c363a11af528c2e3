"""Draw docs/img/thin_wire.svg from benchmarks/results/thin_wire.json: seconds to the target, by link and method."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent
RATES = ("10 Mbit/s", "1 Mbit/s", "100 kbit/s")
COLOURS = {
    "fedavg": "#9a9a9a",
    "fedavg-f16": "#c9c9c9",
    "desketch int4": "#4c8bb8",
    "desketch sign1": "#0b4f7d",
}


def main() -> None:
    """Draw grouped bars; a hatched bar did not reach the target before it was stopped."""
    cells = json.loads((ROOT / "results" / "thin_wire.json").read_text())["cells"]
    mpl.rcParams["svg.hashsalt"] = "desketch"
    figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    for i, (method, colour) in enumerate(COLOURS.items()):
        for j, rate in enumerate(RATES):
            if (cell := cells.get(f"{rate}, {method}")) is None:
                continue
            seconds = cell["seconds"]
            at = j + 0.2 * (i - 1.5)
            hatch = None if cell["reached"] else "///"
            label = method if j == 0 else None
            axes.bar(at, seconds, 0.19, color=colour, hatch=hatch, edgecolor="white", label=label)
            text = f"{seconds:.0f}" if cell["reached"] else f">{seconds:.0f}"
            axes.text(at, seconds * 1.05, text, ha="center", va="bottom", fontsize=8)
    axes.set_yscale("log")
    axes.set_ylim(10, 12000)
    axes.set_xticks(range(len(RATES)), RATES)
    axes.set_ylabel("seconds to 84 % accuracy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=8)
    figure.savefig(ROOT.parent / "docs" / "img" / "thin_wire.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
