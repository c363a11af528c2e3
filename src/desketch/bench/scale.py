"""The largest things a run may be made of, each in a process of its own: parameters, clients, rounds, and starting up.

A case is timed in one process, rounds of desketch and of a plain PyTorch loop in turn, and its peak memory is taken in
another, where the loop does not run.  Memory is what a process takes beyond its imports and its data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from desketch.errors import InputError

__all__ = ["CASES", "UNITS", "Case", "measure", "verdicts"]


@dataclass(frozen=True)
class Case:
    """What is measured: its parts, a process each, the memory that it needs, and the most that each figure may be."""

    title: str
    marks: Mapping[str, float]
    parts: tuple[str, ...] = ("time", "peak")
    gigabytes: float = 2.0


CASES: dict[str, Case] = {
    "wide": Case("d = 10⁷, 10 clients, K = 1", {"ratio": 0.9, "peak_vectors": 6.0}),
    "middle": Case("d = 975k, cohort 50 of 1,000, K = 1", {"ratio": 1.0}),
    "mlp": Case("d = 407k, 10 clients, K = 5", {"ratio": 0.88}),  # what it was before this benchmark, by the same loop
    "users": Case("d = 49k, cohort 50 of 1,000, K = 5", {"ratio": 0.44}),
    "crowd": Case(
        "d = 2,410, cohort 1,000 of 10⁶, K = 5",
        {"ratio": 0.1, "start_cpu_seconds": 1.0, "start_megabytes": 50.0},
        ("time", "start"),
    ),
    "billion": Case("d = 10⁹, 2 clients, K = 1, with a checkpoint", {"peak_vectors": 4.5}, ("once",), 15.0),
    "checkpoint": Case("a checkpoint at d = 10⁸, beside writing its bytes", {"ratio": 1.3}, ("once",), 4.0),
    "rounds": Case("5,000 rounds of 10 clients of 1,000 by `desketch train`", {"last_by_first": 1.1}, ("once",)),
    "train": Case("`desketch train --rounds 1` beyond importing torch", {"cpu_seconds": 2.0}, ("once",)),
    "account": Case("`desketch account`", {"cpu_seconds": 1.0}, ("once",)),
}

UNITS = {
    "ratio": "x",
    "peak_vectors": "x 4d bytes",
    "start_cpu_seconds": "s CPU before round 1",
    "start_megabytes": "MB before round 1",
    "last_by_first": "x, last 500 rounds by first 500",
    "cpu_seconds": "s CPU",
}


def measure(
    only: Iterable[str] = (), *, repeats: int = 7, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Run the cases one after the other; one that this machine has no memory for says so."""
    chosen = list(only) or list(CASES)
    if unknown := [name for name in chosen if name not in CASES]:
        raise InputError(f"there is no case {', '.join(unknown)}; choose of {', '.join(CASES)}")
    rows = {}
    for name in chosen:
        progress(f"{name}: {CASES[name].title}")
        rows[name] = _row(name, CASES[name], repeats)
    return {"command": "desketch bench scale", "cases": rows}


def verdicts(name: str, row: Mapping[str, Any]) -> list[tuple[str, float | None, float, bool | None]]:
    """Each mark of a case: what it is of, what was got, the mark, and whether it is reached; None: not measured."""
    marks = CASES[name].marks
    got = {figure: row.get(figure) for figure in marks}
    return [
        (figure, got[figure], mark, None if (g := got[figure]) is None else g <= mark) for figure, mark in marks.items()
    ]


def _row(name: str, case: Case, repeats: int) -> dict[str, Any]:
    row: dict[str, Any] = {"title": case.title}
    free = _free_gigabytes()
    if free < case.gigabytes:
        return row | {"skipped": f"needs {case.gigabytes:g} GB of memory, {free:.1f} GB were free"}
    for part in case.parts:
        row |= _in_own_process(name, part, repeats)
    return row | {
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "torch": version("torch"),
    }


def _in_own_process(name: str, part: str, repeats: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "desketch.bench.scale_cases", name, part, str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        return {"failed": f"{part}: exit {done.returncode}"}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _free_gigabytes() -> float:
    """Memory that a new process could have; infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    return next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable"))
