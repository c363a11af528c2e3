"""``desketch bench engine``: a federated round beside a plain PyTorch loop over the same clients, as a table."""

from __future__ import annotations

from typing import Any

import typer

from desketch.bench.engine import COHORT, MARKS, STEPS, USERS, measure
from desketch.cli.document import emit

__all__ = ["engine"]


def engine(
    repeats: int = typer.Option(9, min=1, help="Rounds of each, interleaved."),
    compression: float = typer.Option(30.0, help="d / b."),
    codec: str = typer.Option("sign1", help="Codec of both directions."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Measure a round of 50 clients out of 1,000 against a plain PyTorch loop, in one process on one thread."""
    from desketch.bench import own_loop

    result = measure(repeats=repeats, compression=compression, codec=codec)
    result["own_loop"] = own_loop.measure(repeats=repeats)
    emit(result, json_to, lambda: _print(result))


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{USERS} users, cohort {COHORT}, {STEPS} local steps, d = {result['d']:,}", title_justify="left"
    )
    for column in ("", "measured", "mark"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("plain PyTorch loop, CPU s/round", f"{result['plain_loop_cpu_seconds']:.3f}", "")
    table.add_row("desketch, CPU s/round", f"{result['desketch_cpu_seconds']:.3f}", "")
    table.add_row("ratio", f"{result['ratio']:.2f}", f"<= {MARKS['ratio']}")
    table.add_row("sketch + wire share", f"{result['sketch_wire_share']:.1%}", f"<= {MARKS['sketch_wire_share']:.0%}")
    generic = result["own_loop"]
    table.add_row("a user's loop and loader, CPU s/round", f"{generic['own_loop_cpu_seconds']:.3f}", "")
    table.add_row("the same by desketch without its channel", f"{generic['ratio']:.2f}x", f"<= {generic['mark']}x")
    Console().print(table)
