"""Draw the pictures of README and docs from ``benchmarks/results/*.json`` (part of ``make docs``)."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "img"
STYLE = {"svg.hashsalt": "desketch", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def bytes_to_accuracy(part: dict[str, Any]) -> Figure:
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


BEDS = (
    ("0.46M parameters, 5M tokens", (4, 5000, "iid")),
    ("0.11M parameters, 4M tokens", (2, 4000, "iid")),
    ("two texts, 0.11M parameters, 4M tokens", (2, 4000, "text")),
)
METHODS = {
    "sketch": ("sketch (ours)", "#e07b39", "o"),
    "signs": ("one bit with memory (ours)", "#b04a7a", "s"),
    "gossip": ("one bit, gossip (ours)", "#999999", "x"),
    "sparseloco": ("SparseLoCo", "#3b7dd8", "^"),
    "eden": ("EDEN", "#5b4bb5", "p"),
    "stc": ("STC", "#2aa5a0", "<"),
    "diloco": ("DiLoCo f32", "#2f8f5b", "D"),
    "diloco-int4": ("DiLoCo int4", "#7fbf7f", "D"),
    "demo": ("DeMo", "#8a6d3b", "v"),
    "diloco-int8": ("DiLoCo int8", "#4c8f4c", "d"),
    "ddp": ("DDP AdamW", "#222222", "*"),
    "powersgd": ("PowerSGD", "#c0392b", "P"),
    "hook": ("DDP hook (ours)", "#f1c27d", "h"),
}


def language_model(rows: list[dict[str, Any]]) -> Figure:
    """One panel a bed: test loss against bytes a parameter, means over seeds, and the loss of one alone.

    Every setting that was tried has a pale point; a line joins those that no cheaper one of the same method beats on
    validation data.
    """
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    FigureCanvasSVG(figure)
    for axes, (title, bed_of) in zip(figure.subplots(1, len(BEDS)), BEDS, strict=True):
        here = [row for row in rows if (row["layers"], row["steps"], row["shards"]) == bed_of and row["world"] == 4]
        bed = _settings(here)
        for name, (label, color, marker) in METHODS.items():
            if not any(row["row"].partition(":")[0] == name for row in rows):
                continue  # no line in the legend for what has no row
            own = sorted((spent, validation, test) for row, spent, validation, test in bed if row == name)
            best = [one for i, one in enumerate(own) if all(one[1] < cheaper[1] for cheaper in own[:i])]
            axes.scatter([x for x, _, _ in own], [y for _, _, y in own], c=color, marker=marker, s=20, alpha=0.35)
            line = [x for x, _, _ in best], [y for _, _, y in best]
            axes.plot(*line, color=color, marker=marker, markersize=5.5, linewidth=1.2, label=label)
        for row, _, _, test in bed:
            if row == "alone":
                axes.axhline(test, color="#444444", linestyle="--", linewidth=1)
                axes.text(0.98, test, "alone ", va="bottom", ha="right", transform=axes.get_yaxis_transform())
        axes.set_xscale("log")
        axes.set_xlim(0.3, 100_000)
        axes.margins(y=0.1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("bytes a parameter, whole run")
    figure.axes[0].set_ylabel("test loss, nats")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8.5)
    return figure


def _settings(rows: list[dict[str, Any]]) -> list[tuple[str, float, float, float]]:
    """Method, bytes a parameter, validation and test loss of every setting, means over its seeds."""
    seeds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        seeds.setdefault((row["row"], row["engine"]), []).append(row)
    return [
        (
            name.partition(":")[0],
            fmean(cell["bytes_per_parameter"] for cell in cells),
            fmean(cell["validation"][0] for cell in cells),
            fmean(cell["test"][0] for cell in cells),
        )
        for (name, _), cells in seeds.items()
    ]


def _human(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def main() -> None:
    """Write the pictures; the same results give the same files."""
    IMAGES.mkdir(exist_ok=True)
    headline = _read("bytes_to_accuracy")["parts"]["headline"]
    with rc_context(STYLE):
        _write("bytes_to_accuracy", bytes_to_accuracy(headline))
        _write("language_model", language_model(_read("language_model")["rows"]))


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return document


def _write(name: str, figure: Figure) -> None:
    figure.savefig(IMAGES / f"{name}.svg", format="svg", metadata={"Date": None})
    print(f"drawn: docs/img/{name}.svg")


if __name__ == "__main__":
    main()
