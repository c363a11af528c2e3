"""The picture of a comparison: the metric against the bytes of one client, one line per method, on a log axis."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from desketch.baselines.compare import Result
from desketch.core.files import write_durably

__all__ = ["plot_comparison"]

_STYLES = ("-", "--", "-.", ":")


def plot_comparison(results: Sequence[Result], path: Path, *, title: str) -> None:
    """Write a PNG: the mean curve over seeds of each method, a dot where it holds the target."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes, metric = figure.subplots(), results[0].metric
    for i, result in enumerate(results):
        xs, ys = _mean_curve(result)
        if xs and not any(xs):  # who sends nothing has no place on an axis of bytes: a line at what it ends with
            axes.axhline(ys[-1], label=f"{result.method.name} (0 bytes)", linestyle=":", color=f"C{i % 10}")
            continue
        (line,) = axes.plot(xs, ys, label=result.method.name, linestyle=_STYLES[i // 10 % 4], color=f"C{i % 10}")
        cost = result.row()["bytes"]
        if cost is not None:
            axes.plot([cost], [metric.scale * result.target], "o", color=line.get_color())
    axes.axhline(metric.scale * results[0].target, color="0.6", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("bytes of one client, up + down")
    axes.set_ylabel(f"test {metric.axis}")
    if metric.share:
        axes.set_ylim(bottom=max(0.0, 100 * results[0].target - 25))
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_durably(path, picture.getvalue())


def _mean_curve(result: Result) -> tuple[list[float], list[float]]:
    """Bytes and the metric, averaged over seeds for as long as all of them run."""
    curves = [trial.curves[result.choice.average] for trial in result.trials]
    points = list(zip(*curves, strict=False))
    scale = result.metric.scale
    return [mean(p.bytes for p in step) for step in points], [scale * mean(p.value for p in step) for step in points]
