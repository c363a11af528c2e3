"""RunRecord: what a run folder says, as columns ready to plot.

A run folder holds ``config.yaml``, ``metrics.jsonl`` (one row a round; bytes of all clients together) and
``summary.json``; a private one also ``privacy.json``.  The summary may be absent (an interrupted run), the last row may
be torn (a killed one), any column beyond ``round`` may be missing, and damaged rows are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from desketch.core.files import read_sealed
from desketch.core.metrics import METRICS, Metric, primary
from desketch.core.rows import read_rows
from desketch.errors import RunError

__all__ = ["RunRecord", "read_run"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Configuration, rows and summary of a run, with the derived columns of its plots."""

    folder: Path
    config: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]
    privacy: Mapping[str, Any]
    damage: str = ""  # one sentence about rows that are left out

    def column(self, *names: str) -> Floats:
        """The first of these columns that any row has, NaN where it is missing; all NaN if no row has one."""
        name = next((name for name in names if any(_number(row.get(name)) for row in self.rows)), names[0])
        return np.array([float(row[name]) if _number(row.get(name)) else np.nan for row in self.rows])

    @property
    def rounds(self) -> Floats:
        """The round of each row."""
        return self.column("round")

    @property
    def metric(self) -> Metric:
        """What the run is judged by: the first known metric that its rows or its summary have, else a user's own."""
        seen = {name for row in self.rows for name in row if _number(row[name])} | set(self.summary)
        known = {name: 1 for name in METRICS if seen & {name, f"val_{name}", f"test_{name}"}}
        own = next((Metric(name=name, higher=True) for name in self.summary.get("metrics") or ()), None)
        return primary(known) or own or METRICS["accuracy"]

    @property
    def judged(self) -> Floats:
        """The metric of each row, shares in percent."""
        name = self.metric.name
        return self.metric.scale * self.column(name, f"val_{name}", f"test_{name}")

    @property
    def clients(self) -> int:
        """N, over which the bytes of a round are averaged."""
        return max(1, int(self.config.get("clients") or self.summary.get("clients") or 1))

    def bytes_per_client(self) -> Floats:
        """Bytes sent and received by a client, on average, up to each round."""
        return (
            np.cumsum(np.nan_to_num(self.column("bytes_up")) + np.nan_to_num(self.column("bytes_down"))) / self.clients
        )

    def seconds_on_link(self, bits_per_second: float) -> Floats:
        """Time up to each round if every client had such a link: its own share of the work, then its bytes.

        A round takes ``seconds / participants`` (clients work side by side) plus the bytes of one participant, up and
        down, over the rate.  A row may name the bytes that have to follow one another as ``bytes_critical``.
        """
        present = np.maximum(
            1.0,
            np.nan_to_num(self.column("participants"), nan=self.clients * float(self.config.get("fraction") or 1.0)),
        )
        total = np.nan_to_num(self.column("bytes_up")) + np.nan_to_num(self.column("bytes_down"))
        critical = self.column("bytes_critical")
        serial = np.where(np.isnan(critical), total / present, critical)
        return np.cumsum(np.nan_to_num(self.column("seconds")) / present + 8 * serial / bits_per_second)


def read_run(folder: str | Path) -> RunRecord:
    """Read a run folder; damaged rows are left out and named, any other damage is a `RunError`."""
    folder = Path(folder)
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        raise RunError(f"{folder} is no run folder: it has no metrics.jsonl")
    parse: dict[str, Callable[[str], Any]] = {
        "config.yaml": yaml.safe_load,
        "summary.json": json.loads,
        "privacy.json": json.loads,
    }
    config, summary, privacy = (_mapping(folder / name, read) for name, read in parse.items())
    found = read_rows(metrics)
    if not found.rows:
        raise RunError(f"{metrics} has no finished round to report{': ' * bool(found.damaged)}{found.report(metrics)}")
    return RunRecord(
        folder=folder,
        config=config,
        rows=found.rows,
        summary=summary,
        privacy=privacy,
        damage=found.report(Path("metrics.jsonl")),
    )


def _mapping(path: Path, read: Callable[[str], Any]) -> dict[str, Any]:
    text = _text(path)
    if "sha256" in text:
        read_sealed(path, "restore it, or delete it and go on with: desketch train --resume")
    try:
        values = read(text or "{}")
    except (yaml.YAMLError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} must hold names and values, got {type(values).__name__}")
    values.pop("sha256", None)
    return values


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
