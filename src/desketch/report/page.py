"""The page around the sections: one file, no script, and a policy that forbids it to fetch anything."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from desketch.core.files import write_durably
from desketch.report.records import RunRecord, read_run
from desketch.report.sections import SECTIONS, headline

__all__ = ["render_report", "write_report"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` into a run folder from what the run left there; returns its path."""
    target = Path(folder) / "report.html"
    write_durably(target, render_report(folder))
    return target


def render_report(folder: str | Path) -> str:
    """The report of a run folder as HTML: a pure function of the files in it."""
    run = read_run(folder)
    style = files("desketch.report").joinpath("style.css").read_text(encoding="utf-8")
    sections = {title: make(run) for title, make in SECTIONS.items()}
    body = "".join(f"<section><h2>{escape(title)}</h2>{html}</section>" for title, html in sections.items() if html)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(_title(run))}</title><style>{style}</style></head>\n"
        f"<body><main><header><h1>{escape(_title(run))}</h1><p>{escape(_subtitle(run))}</p></header>"
        f'<div class="cards">{headline(run)}</div>{_warning(run)}{body}</main></body></html>\n'
    )


def _title(run: RunRecord) -> str:
    return f"{run.config.get('task', 'a run')} · {run.config.get('model', 'model')}"


def _subtitle(run: RunRecord) -> str:
    config = run.config
    ratio = str(config.get("compression", "?")).removesuffix(".0")
    size = f"b = {config['b']}" if config.get("b") else f"d/b = {ratio}"
    up = config.get("codec", "?")
    wire = f"{config.get('family', '?')} {size}, {up} up, {config.get('codec_down') or up} down"
    split = f"{config['partition']}, " if config.get("partition") else ""
    graph = f"{config['topology']} without a server, " if config.get("topology") else ""
    return f"desketch run: {config.get('clients', '?')} clients, {graph}{split}{wire}"


def _warning(run: RunRecord) -> str:
    """Say loudly what must not be overlooked."""
    notes = [run.damage] if run.damage else []
    if (run.config.get("dp") or {}).get("not_private_seed") is not None:
        notes.append("NOT PRIVATE: this run took its noise from a fixed seed, for testing only.")
    if not run.summary or run.summary.get("stopped_by") == "interrupt":
        notes.append("This run was interrupted or is still going on: it can be resumed.")
    if run.summary.get("stopped_by") == "budget":
        notes.append("Training stopped before the round that would have exceeded the privacy budget.")
    return "".join(f'<p class="warning">{escape(note)}</p>' for note in notes)
