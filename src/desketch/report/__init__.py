"""Plots and the self-contained HTML report of a run: `write_report(folder)` reads what the run wrote, nothing else."""

from __future__ import annotations

from desketch.report.page import render_report, write_report
from desketch.report.plots import Series, graph_figure, line_figure, to_svg
from desketch.report.records import RunRecord, read_run

__all__ = [
    "RunRecord",
    "Series",
    "graph_figure",
    "line_figure",
    "read_run",
    "render_report",
    "to_svg",
    "write_report",
]
