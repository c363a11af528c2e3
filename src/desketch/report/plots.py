"""Plots as inline SVG that follow the page: text and axes take its colour, light or dark, and nothing is fetched."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from desketch.core.lazy import lazy

__all__ = ["PALETTE", "Series", "graph_figure", "line_figure", "to_svg"]

nx = lazy("networkx")
PALETTE = ("#3d85c6", "#e07b39", "#4fa35f", "#a56cc1", "#c9a227")
_INK, _FAINT = "#010203", "#040506"  # stand-ins that `to_svg` replaces by the page's own colours
_SIZE = (4.5, 3.1)
_STYLE = {
    "svg.fonttype": "none",  # the page's own fonts
    "font.family": "sans-serif",
    "font.size": 11,  # of a picture as wide as a phone: legible at 390 px, three to a row on a desk
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve; points that are NaN are left out."""

    label: str
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    dashed: bool = False


def line_figure(
    series: Sequence[Series],
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    unit: str = "",
    marks: Sequence[tuple[str, float]] = (),
) -> Figure:
    """Curves over one axis; ``unit`` writes the x axis with SI prefixes; ``marks`` are labelled vertical lines."""
    with rc_context(_STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.add_axes((0.155, 0.175, 0.815, 0.78))
        for colour, curve in zip(_cycle(len(series)), series, strict=True):
            _draw(axes, curve, colour, positive_x=log_x, positive_y=log_y)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        wide = axes.dataLim.x1 > 10 * axes.dataLim.minposx  # a log axis within a decade has hardly a tick
        axes.set_xscale("log" if log_x and axes.lines and axes.dataLim.x1 > 0 and (wide or marks) else "linear")
        axes.set_yscale("log" if log_y and axes.dataLim.y1 > 0 else "linear")
        for label, x in marks:
            axes.axvline(x, color=_INK, linewidth=0.9, linestyle=(0, (2, 3)))
            axes.text(x, 0.05, f"{label} ", transform=axes.get_xaxis_transform(), ha="right", rotation=90, fontsize=10)
        if unit:
            axes.xaxis.set_major_formatter(EngFormatter(unit=unit, sep=" "))
            axes.xaxis.set_minor_formatter("")
        if xlabel == "round" and axes.get_xscale() == "linear":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(series) > 1:
            axes.legend(loc="best")
    return figure


def graph_figure(edges: Sequence[tuple[int, int]], *, nodes: int) -> Figure:
    """A drawing of who talks to whom."""
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    place = nx.circular_layout(graph) if nodes > 200 else nx.kamada_kawai_layout(graph)
    xy = np.array([place[node] for node in range(nodes)])
    with rc_context(_STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
        for i, j in graph.edges:
            axes.plot(*xy[[i, j]].T, color=_INK, linewidth=0.6, alpha=0.6, zorder=1)
        axes.scatter(xy[:, 0], xy[:, 1], s=max(4.0, 400 / max(nodes, 10)), color=PALETTE[0], zorder=2)
        axes.set_aspect("equal")
        axes.set_axis_off()
    return figure


def to_svg(figure: Figure, *, prefix: str) -> str:
    """The figure as one ``<svg>`` element whose ids start with ``prefix`` and whose ink is the page's text colour."""
    buffer = io.StringIO()
    with rc_context(_STYLE | {"svg.hashsalt": prefix}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    return svg.replace(_INK, "currentColor").replace(_FAINT, "var(--faint)").strip()


def _draw(axes: Any, curve: Series, colour: str, *, positive_x: bool, positive_y: bool) -> None:
    """Draw the points that exist on these axes: finite, and positive where the axis is logarithmic."""
    known = np.isfinite(curve.x) & np.isfinite(curve.y)
    known &= ~(positive_x & (curve.x <= 0)) & ~(positive_y & (curve.y <= 0))
    few = known.sum() <= 30
    axes.plot(
        curve.x[known],
        curve.y[known],
        label=curve.label,
        color=colour,
        linestyle="--" if curve.dashed else "-",
        marker="o" if few else None,
        markersize=3,
    )


def _cycle(n: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(n)]
