"""Sections of a report: each takes the record of a run and returns HTML, or nothing when the run has no such thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from desketch.core.metrics import METRICS, Metric
from desketch.core.units import human_bytes
from desketch.report.plots import Series, graph_figure, line_figure, to_svg
from desketch.report.records import RunRecord

__all__ = ["SECTIONS", "headline"]

LINKS = {"10 Mbit/s": 1e7, "1 Mbit/s": 1e6, "100 kbit/s": 1e5}
_PACKAGES = ("desketch", "torch", "numpy")
_RECORDED = ("version", "torch", "numpy", "python", "platform")
_MOST_EDGES = 2000
_HEADINGS = {"rmse": "RMSE", "r2": "R²", "f1": "F1"}


def headline(run: RunRecord) -> str:
    """The numbers one looks for first, as cards."""
    summary, last = run.summary, run.rows[-1]
    spent = float(run.bytes_per_client()[-1])
    fedavg = summary.get("fedavg_bytes_per_client")
    epsilon = summary.get("epsilon", last.get("epsilon"))
    cards = [
        *_judgement(run),
        ("rounds", f"{summary.get('rounds', last.get('round'))}"),
        ("up per client", _size(summary.get("bytes_up_per_client"))),
        ("down per client", _size(summary.get("bytes_down_per_client"))),
        ("FedAvg, same rounds", _size(fedavg)),
        ("fewer, same rounds", f"{fedavg / spent:,.0f}x" if fedavg and spent else None),
        ("epsilon spent", f"{epsilon:.3g}" if isinstance(epsilon, int | float) else None),
    ]
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in cards if value
    )


def progress(run: RunRecord) -> str:
    """The metric against bytes, rounds and time on three links; other metrics, loss and step when recorded."""
    parts = [
        *(_judged(run) if np.isfinite(run.judged).any() else []),
        *(
            _optional(run, other.name, _heading(other), other.name, xlabel="round", ylabel=other.title)
            for other in METRICS.values()
            if other is not run.metric
        ),
        _optional(run, "loss", "Loss", "loss", xlabel="round", ylabel="loss"),
        _optional(run, "eta_global", "Server step", "step", xlabel="round", ylabel="step of the server"),
    ]
    plots = f'<div class="plots">{"".join(parts)}</div>'
    return plots if np.isfinite(run.judged).any() else f"<p>{_UNJUDGED}</p>{plots}"


_UNJUDGED = "No metric is recorded yet; a run of federate has some with evaluate=, a function of the model."


def _judged(run: RunRecord) -> list[str]:
    """The plots of what a run is judged by."""
    metric, judged, rounds, spent = run.metric, run.judged, run.rounds, run.bytes_per_client()
    title = _heading(metric)
    fedavg = run.summary.get("fedavg_bytes_per_client")
    marks = [("FedAvg, same rounds", float(fedavg))] if fedavg else []
    curves = [Series(label=name, x=run.seconds_on_link(rate), y=judged) for name, rate in LINKS.items()]
    return [
        _figure(
            "bytes",
            f"{title} against bytes",
            line_figure(
                [Series(label=metric.title, x=spent, y=judged)],
                xlabel="sent and received per client",
                ylabel=metric.axis,
                log_x=True,
                unit="B",
                marks=marks,
            ),
            "Every byte of every frame, headers and catch-ups included, averaged over the clients.",
        ),
        _figure(
            "rounds",
            f"{title} against rounds",
            line_figure([Series(label=metric.title, x=rounds, y=judged)], xlabel="round", ylabel=metric.axis),
            f"{len(run.rows):,} rounds, {run.clients:,} clients.",
        ),
        _figure(
            "time",
            f"{title} against time on slow links",
            line_figure(curves, xlabel="time", ylabel=metric.axis, log_x=True, unit="s"),
            "A round takes one client's share of the measured seconds plus its frames at the rate of its link."
            + _fedavg_times(fedavg),
        ),
    ]


def attendance(run: RunRecord) -> str:
    """Who was refused, and how many were absent."""
    refused = [(row.get("round"), who, why) for row in run.rows for who, why in _refusals(row)]
    totals = {name: int(np.nansum(run.column(name))) for name in ("dropped", "late", "down")}
    lines = [(f"clients {name}", str(total)) for name, total in totals.items() if total]
    lines += [(f"round {t}, client {who}", f"refused: {why}") for t, who, why in refused[:50]]
    if len(refused) > 50:
        lines.append(("and more", f"{len(refused) - 50} further refusals in metrics.jsonl"))
    return _table(lines)


def privacy(run: RunRecord) -> str:
    """The guarantee, its preconditions as the ledger states them, and epsilon over rounds."""
    spent = {name: run.summary[name] for name in ("epsilon", "delta") if run.summary.get(name) is not None}
    recorded = {name: run.privacy[name] for name in ("claim", "budget") if isinstance(run.privacy.get(name), Mapping)}
    facts = spent | dict(recorded.get("claim", {})) | {"budget": recorded.get("budget")}
    plot = _optional(run, "epsilon", "Epsilon spent", "epsilon", xlabel="round", ylabel="epsilon")
    return (f'<div class="plots">{plot}</div>' if plot else "") + _table(_flat(facts))


def topology(run: RunRecord) -> str:
    """The graph, the spread of the replicas, what the edges carried, and what one average costs by protocol."""
    facts = dict(run.summary.get("topology") or {})
    costs = list(facts.pop("one average", {}).values())
    edges = [(int(i), int(j)) for i, j in facts.pop("edges", [])]
    nodes = int(facts.get("nodes", run.clients))
    drawn = ""
    if edges and len(edges) <= _MOST_EDGES:
        drawn = _figure(
            "graph", "Who talks to whom", graph_figure(edges, nodes=nodes), f"{nodes} nodes, {len(edges)} edges."
        )
    spread = _optional(
        run,
        "consensus",
        "Distance of the nodes from their mean",
        "consensus",
        xlabel="round",
        ylabel="RMS distance",
        log_y=True,
    )
    plots = f'<div class="plots">{drawn}{spread}</div>' if drawn or spread else ""
    return plots + _table(_flat(facts)) + (f"<h3>One average, by protocol</h3>{_grid(costs)}" if costs else "")


def captures(run: RunRecord) -> str:
    """Frames that were kept for a leakage audit."""
    files = sorted(path for path in (run.folder / "capture").glob("**/*") if path.is_file())
    return _table([(path.relative_to(run.folder).as_posix(), human_bytes(path.stat().st_size)) for path in files[:200]])


def configuration(run: RunRecord) -> str:
    """Every setting of the run."""
    return _table(_flat(run.config))


def versions(run: RunRecord) -> str:
    """What computed the run; without a record, what wrote this report."""
    found = {"desketch" if name == "version" else name: run.summary[name] for name in _RECORDED if name in run.summary}
    found = found or {f"{name} (writing this report)": _version(name) for name in _PACKAGES}
    digest = run.summary.get("replica_digest", run.rows[-1].get("digest"))
    extra = {"replica digest": digest, "seconds": run.summary.get("seconds")}
    return _table(_flat(found | extra))


# title -> section; the order of the page
SECTIONS = {
    "Progress": progress,
    "Privacy": privacy,
    "Topology": topology,
    "Absent and refused": attendance,
    "Captured frames": captures,
    "Configuration": configuration,
    "Versions": versions,
}


def _size(count: Any) -> str | None:
    return human_bytes(count) if isinstance(count, int | float) else None


def _figure(name: str, title: str, figure: Figure, caption: str) -> str:
    svg = to_svg(figure, prefix=name).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _optional(run: RunRecord, column: str, title: str, name: str, **axes: Any) -> str:
    """Plot a column over rounds if any row has it."""
    y = run.column(column)
    if not np.isfinite(y).any() or (axes.get("log_y") and not np.nanmax(y) > 0):
        return ""
    return _figure(name, title, line_figure([Series(label=column, x=run.rounds, y=y)], **axes), "")


def _table(lines: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    return f"<table>{rows}</table>" if rows else ""


def _grid(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same names, one column a name."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_plain(value, name))}</td>' for name, value in row.items())}</tr>" for row in rows
    )
    return f'<table class="grid"><tr>{head}</tr>{body}</table>'


def _plain(value: Any, name: str = "") -> str:
    """A value as a person would write it, its name says in which unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and "bytes" in name:
        return human_bytes(value)
    if isinstance(value, float):
        return f"{value:.3g} s" if name == "seconds" else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 and "seed" not in name else str(value)


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names; what is unset is left out."""
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += _flat(value, f"{above}{name}.")
        elif value is not None and value != []:
            lines.append((f"{above}{name}", _plain(value, name)))
    return lines


def _fedavg_times(fedavg: Any) -> str:
    if not isinstance(fedavg, int | float):
        return ""
    times = ", ".join(f"{8 * fedavg / rate:,.3g} s at {name}" for name, rate in LINKS.items())
    return f" FedAvg's frames alone, for the same rounds: {times}."


def _refusals(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    refused = row.get("refused")
    return [(str(who), str(why)) for who, why in refused.items()] if isinstance(refused, Mapping) else []


def _judgement(run: RunRecord) -> list[tuple[str, str | None]]:
    """Every metric of the summary, or else of the last row, the first one first."""
    tested = {name: run.summary.get(f"test_{name}") for name in METRICS}
    last = {name: run.rows[-1].get(name) for name in METRICS}
    prefix, values = ("test ", tested) if any(v is not None for v in tested.values()) else ("", last)
    return [(f"{prefix}{METRICS[name].title}", _written(METRICS[name], value)) for name, value in values.items()]


def _heading(metric: Metric) -> str:
    """The metric's name at the head of a plot."""
    return _HEADINGS.get(metric.name, metric.title.capitalize())


def _written(metric: Metric, value: Any) -> str | None:
    if not isinstance(value, int | float):
        return None
    return f"{100 * value:.2f} %" if metric.share else metric.show(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
