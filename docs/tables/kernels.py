"""Tables of README and docs from benchmarks/results/kernels.json (`desketch bench kernels --json ...`)."""

from __future__ import annotations

from typing import Any

BOUND = {"x faster": "at least"}
UNITS = {"x faster": "x", "ns per entry": " ns per entry", "us": " us", "ms": " ms", "reads": " reads"}
REACHED = {True: "yes", False: "**no**", None: "no two free cores to tell"}


def marks(result: dict[str, Any]) -> str:
    """Every mark, what was got, and whether it is reached."""
    in_cache = {row["item"]: f"{_number(row['reads_in_cache'])} reads" for row in result["kernels"]}
    lines = [f"| {_setting(result)} | mark | got | reached | g in cache |", "|---|---:|---:|---|---:|"]
    for mark in result["marks"]:
        unit = UNITS[mark["unit"]]
        bound = f"{BOUND.get(mark['unit'], 'at most')} {mark['mark']:g}{unit}"
        got = f"{_number(mark['got'])}{unit} | {REACHED[mark['reached']]}"
        lines.append(f"| {mark['item']} | {bound} | {got} | {in_cache.get(mark['item'], '')} |")
    return "\n".join(lines)


def peers(result: dict[str, Any]) -> str:
    """Every peer, its CPU time, and how many times longer it takes than the kernel it is compared with."""
    lines = [f"| {_setting(result)} | CPU ms | slower than | by |", "|---|---:|---|---:|"]
    for row in result["peers"]:
        peer = row["peer"] if row["d"] == result["d"] else f"{row['peer']} (d = {row['d']:,}, b = {row['b']:,})"
        against = row["against"].removesuffix(", small")
        lines.append(f"| {peer} | {row['cpu_ms']:,.1f} | {against} | {_number(row['ratio'])}x |")
    return "\n".join(lines)


def _setting(result: dict[str, Any]) -> str:
    threads = "one thread" if result["threads"] == 1 else f"{result['threads']} threads"
    return f"d = {result['d']:,}, b = {result['b']:,}, {result['isa']}, {threads}"


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
