"""``desketch verify``: run the theorems on problems with known constants and report how hard each bound is pressed."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import typer

from desketch.cli.document import emit
from desketch.run.status import progress_line

if TYPE_CHECKING:
    from desketch.verify.rows import Row

app = typer.Typer(
    add_completion=False, help="Check every theorem against experiments; refute the printed statements that are false."
)


@app.command()
def verify(
    quick: bool = typer.Option(
        False, "--quick", help="Fewer runs and rounds: under a minute of one core; without it under ten."
    ),
    functions: bool = typer.Option(False, "--functions", help="Re-derive the paper's function table instead."),
    worst: bool = typer.Option(False, "--worst", help="Report only the hardest case of every statement."),
    seed: int = typer.Option(2023, min=0, max=2**63 - 1, help="Public key of the sketches."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Run the theorems; exit code 1 when a bound is violated anywhere, or a counter-example does not contradict."""
    if functions:
        _functions(json_to)
        return
    started = time.process_time()
    rows = _run(quick, seed)
    spent = time.process_time() - started
    failed = [row for row in rows if not row.as_expected]
    hardest = hardest_rows(rows)
    document = {
        "scale": "quick" if quick else "full",
        "seed": seed,
        "cpu_seconds": round(spent, 1),
        "rows": [row.as_dict() for row in (hardest if worst else rows)],
    }
    emit(document, json_to, lambda: _table(hardest, failed, spent))
    if failed:
        raise typer.Exit(1)


def _run(quick: bool, seed: int) -> list[Row]:
    from desketch.verify.suite import FULL, QUICK
    from desketch.verify.suite import verify as stream

    with progress_line() as progress:
        return list(stream(QUICK if quick else FULL, seed=seed, progress=progress))


def hardest_rows(rows: list[Row]) -> list[Row]:
    """One row per statement, form and method: a failing one if there is any, else the largest ratio."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.theorem, row.corrected, row.refuted, row.method), []).append(row)
    return [
        replace(max(group, key=lambda r: (not r.as_expected, r.worst_ratio)), checks=len(group))
        for group in groups.values()
    ]


def _table(hardest: list[Row], failed: list[Row], spent: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from desketch.verify.places import place

    table = Table(title="hardest case of every statement (measured / bound)")
    for name in ("statement", "in the paper", "checks", "ratio", "verdict", "hardest case"):
        table.add_column(name, justify="right" if name in ("checks", "ratio") else "left", overflow="fold")
    for row in hardest:
        case = f"{row.family}, {row.method}: {row.setting}"
        ratio = f"{row.worst_ratio:.3g}"
        table.add_row(row.theorem, place(row.theorem), str(row.checks), ratio, _verdict(row), case)
    console = Console()
    console.print(table)
    console.print(f"{sum(r.checks for r in hardest)} checks, {len(failed)} not as expected, {spent:.0f} s of CPU")
    for row in failed:
        console.print(f"  {row.theorem} | {row.family} | {row.setting} | ratio {row.worst_ratio:.4g}", style="red")


def _verdict(row: Row) -> str:
    colour = "red" if not row.as_expected else "yellow" if row.refuted else "green"
    return f"[{colour}]{row.verdict}[/] {'corrected' if row.corrected else 'as printed'}"


def _functions(json_to: str | None) -> None:
    from desketch.theory.functions import function_table

    rows = function_table()
    emit([asdict(row) for row in rows], json_to, lambda: _function_table(rows))


def _function_table(rows: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="the paper's function table, re-derived (paper / ours where they differ)")
    for name in ("function", "domain", *rows[0].verdicts):
        table.add_column(name)
    for row in rows:
        cells = [_mark(v.paper) + ("" if v.paper == v.ours else f" / {_mark(v.ours)}") for v in row.verdicts.values()]
        table.add_row(row.function, row.domain, *cells)
    Console().print(table)


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"
