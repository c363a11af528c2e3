"""``desketch bench kernels``: every sketch beside one read of its vector, and beside peers, as tables."""

from __future__ import annotations

from typing import Any

import typer

from desketch.bench.kernels import CALL_D, COMPRESSION, D, measure
from desketch.cli.document import emit

__all__ = ["kernels"]


def kernels(
    d: int = typer.Option(D, min=1 << 14, help="Numbers in a vector."),
    b: int | None = typer.Option(None, min=1, help="Numbers in its sketch; d/100 by default."),
    threads: int = typer.Option(1, min=1, help="Threads of kernels and peers."),
    repeats: int = typer.Option(9, min=3, help="Turns of every kernel; the peers get three."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Measure every sketch, both ways, with a fresh R per call, interleaved with peers in one process."""
    result = measure(d=d, b=b or d // COMPRESSION, threads=threads, repeats=repeats)
    emit(result, json_to, lambda: _print(result))


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    for table in (_kernel_table(result), _peer_table(result)):
        console.print(table)
    for mark in result["marks"]:
        if not mark["reached"]:
            why = "no two free cores to tell" if mark["reached"] is None else "not reached"
            console.print(f"{mark['item']}: {mark['got']:.3g} {mark['unit']}, mark {mark['mark']:g}: {why}")


def _kernel_table(result: dict[str, Any]) -> Any:
    from rich.table import Table

    machine, bounds = result["machine"], {mark["item"]: mark["mark"] for mark in result["marks"]}
    title = (
        f"d = {result['d']:,}, b = {result['b']:,}, {machine['cpu']}, {result['isa']}, {result['threads']} thread(s)"
    )
    table = Table(title=f"{title}; one read = {result['read_ms']:.2f} ms", title_justify="left")
    for column in ("a fresh R per call", "CPU ms", "reads", "in cache", "fresh memory", "ns per entry", "mark"):
        table.add_column(column, justify="right" if table.columns else "left")
    for row in result["kernels"] + result["dense"]:
        cells = [f"{row[key]:.2f}" if key in row else "" for key in ("reads", "reads_in_cache", "reads_fresh_memory")]
        entry = f"{row['ns']:.3f}" if "ns" in row else ""
        mark = f"{bounds[row['item']]:g}" if row["item"] in bounds else ""
        table.add_row(row["item"], f"{row['cpu_ms']:.1f}", *cells, entry, mark)
    for kind, microseconds in result["call_us"].items():
        table.add_row(f"draw and sketch at d={CALL_D}, {kind}", f"{microseconds / 1e3:.4f}", "", "", "", "", "0.015")
    if result["import_ms"] is not None:
        table.add_row("import of the extension", f"{result['import_ms']:.1f}", "", "", "", "", "10")
    for name, speed_up in result["two_threads"].items():
        table.add_row(f"{name}, two threads", f"{speed_up:.2f} x faster", "", "", "", "", "1.5")
    return table


def _peer_table(result: dict[str, Any]) -> Any:
    from rich.table import Table

    bounds = {mark["item"]: mark["mark"] for mark in result["marks"]}
    table = Table(title="Peers", title_justify="left")
    for column in ("peer", "d", "CPU ms", "slower than", "by", "mark"):
        table.add_column(column, justify="left" if column in ("peer", "slower than") else "right")
    for row in result["peers"]:
        mark = f"{bounds[row['peer']]:g}x" if row["peer"] in bounds else ""
        cells = (f"{row['d']:,}", f"{row['cpu_ms']:.1f}", row["against"], f"{row['ratio']:.1f}x", mark)
        table.add_row(row["peer"], *cells)
    return table
