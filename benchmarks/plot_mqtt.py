"""Draw docs/img/mqtt.svg from benchmarks/results/mqtt.json: seconds and bytes at the interface against accuracy."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent
TARGET = 0.84
# part and name in the document -> label, colour, line
LINES = {
    ("cells", "100 kbit/s"): ("MQTT, b = 3392", "#0b4f7d", "-"),
    ("cells", "100 kbit/s, 30x"): ("MQTT, b = 13568", "#4c8bb8", "-"),
    ("cells", "10 kbit/s"): ("MQTT, b = 3392, 10 kbit/s", "#0b4f7d", ":"),
    ("beside", "desketch sign1"): ("Flower, b = 3392", "#c46a1b", "-"),
    ("beside", "fedavg-f16"): ("Flower, FedAvg f16", "#b0b0b0", "--"),
    ("beside", "fedavg"): ("Flower, FedAvg", "#707070", "-"),
}


def main() -> None:
    """One line a run: time on the left, bytes on the right."""
    document: dict[str, Any] = json.loads((ROOT / "results" / "mqtt.json").read_text())
    mpl.rcParams["svg.hashsalt"] = "desketch"
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained", sharey=True)
    for (part, name), (label, colour, style) in LINES.items():
        if (cell := document.get(part, {}).get(name)) is None:
            continue
        accuracies = [100 * value for value in cell["accuracies"]]
        kilobytes = [moved / 1e3 for moved in cell["interface_bytes_after_rounds"]]
        how = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3, "label": label}
        left.plot(list(accumulate(cell["seconds_of_rounds"])), accuracies, **how)
        right.plot(kilobytes, accuracies, **how)
    for axes, what in ((left, "seconds of rounds, local work included"), (right, "kB at the interface, TLS and all")):
        axes.axhline(100 * TARGET, color="#d0d0d0", linewidth=1, zorder=0)
        axes.set_xscale("log")
        axes.set_xlabel(what)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("test accuracy, %")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(ROOT.parent / "docs" / "img" / "mqtt.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
