"""A progress bar of rounds with the latest metrics and the bytes on the wire, on the standard error."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from desketch.fed.rounds import Observer, RoundRecord

__all__ = ["Progress"]

_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress(Observer):
    """Shows when the standard error is a terminal, or when told to; refused updates are named as they come."""

    def __init__(self, rounds: int, *, done: int = 0, show: bool | None = None) -> None:
        columns = (
            rich_progress.TextColumn("round"),
            rich_progress.MofNCompleteColumn(),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[metrics]}"),
            rich_progress.TextColumn("{task.fields[sent]}"),
            rich_progress.TimeRemainingColumn(),
        )
        shown = sys.stderr.isatty() if show is None else show
        self._bar = rich_progress.Progress(*columns, console=Console(stderr=True), disable=not shown)
        self._line = self._bar.add_task("", total=rounds, completed=done, metrics="", sent="")
        self._sent = 0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_round(self, record: RoundRecord) -> None:
        """Advance by one round."""
        self._sent += record.bytes_up + record.bytes_down
        fields: dict[str, Any] = {"sent": f"{_human(self._sent)} on the wire"}
        if record.metrics:
            fields["metrics"] = "  ".join(f"{name} {value:.4g}" for name, value in list(record.metrics.items())[:2])
        self._bar.update(self._line, completed=record.round, **fields)
        for client, reason in record.refused.items():
            self._bar.console.print(f"round {record.round}: client {client} refused ({reason})", highlight=False)
        if record.void:
            self._bar.console.print(f"round {record.round}: void ({record.void})", highlight=False)


def _human(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {_UNITS[unit]}"
