"""``desketch bench scale``: large models, many clients and many rounds, each case in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from desketch.bench.scale import CASES, UNITS, measure, verdicts
from desketch.cli.document import emit

__all__ = ["scale"]


def scale(
    only: list[str] | None = typer.Option(None, help=f"This case alone, or several: {', '.join(CASES)}."),
    repeats: int = typer.Option(7, min=1, help="Rounds of each side, interleaved."),
    json_to: str | None = typer.Option(
        None, "--json", help="Write one JSON document to a file, beside the cases it has, or to stdout with -."
    ),
) -> None:
    """Measure CPU time beside a plain PyTorch loop, and peak memory, at sizes where they are most of the cost."""
    result = measure(only or (), repeats=repeats, progress=lambda text: typer.echo(text, err=True))
    if json_to not in (None, "-") and Path(str(json_to)).is_file():
        before = json.loads(Path(str(json_to)).read_text(encoding="utf-8"))
        result["cases"] = {**before["cases"], **result["cases"]}
    emit(result, json_to, lambda: _print(result))


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Each case in a process of its own", title_justify="left")
    for column in ("case", "got", "mark", "reached"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, row in result["cases"].items():
        for figure, got, mark, reached in verdicts(name, row):
            why = row.get("skipped") or row.get("failed") or "not measured"
            shown = why if got is None else f"{got:.3g} {UNITS[figure]}"
            table.add_row(row["title"], shown, f"<= {mark:g}", {True: "yes", False: "no", None: ""}[reached])
    Console().print(table)
