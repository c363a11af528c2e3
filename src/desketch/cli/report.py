"""``desketch report FOLDER``: write a run's report again from what the run left in its folder."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def report(folder: Path = typer.Argument(help="a run folder: config.yaml, metrics.jsonl, summary.json")) -> None:
    """Write FOLDER/report.html, one self-contained page, and print its path."""
    from desketch.report import write_report

    Console().print(str(write_report(folder)), highlight=False, soft_wrap=True)
