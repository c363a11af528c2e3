"""Rounds with the latest metrics and the bytes on the wire, on the standard error: a bar, or lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from desketch.core.metrics import Metric
from desketch.core.units import human_bytes
from desketch.fed.rounds import Observer, RoundRecord
from desketch.run.status import Log, remaining

__all__ = ["Progress", "refusals"]

_NAMED = 3  # clients of one line


class Progress(Observer):
    """Shows when the standard error is a terminal, or when told to; refused updates are named, a line a kind and round.

    With ``metric`` that one is shown, in its own unit; else the first two of whatever is evaluated.  ``rows`` are those
    of the ``done`` rounds before a run was resumed: their bytes count.
    """

    def __init__(
        self,
        rounds: int,
        *,
        done: int = 0,
        rows: Iterable[Mapping[str, Any]] = (),
        show: bool | None = None,
        metric: Metric | None = None,
    ) -> None:
        columns = (
            rich_progress.TextColumn("round"),
            rich_progress.MofNCompleteColumn(),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[metrics]}"),
            rich_progress.TextColumn("{task.fields[sent]}"),
            rich_progress.TimeRemainingColumn(),
        )
        shown = sys.stderr.isatty() if show is None else show
        console = Console(stderr=True)
        self._bar = rich_progress.Progress(*columns, console=console, disable=not (shown and console.is_terminal))
        self._log = Log() if shown and not console.is_terminal else None
        self._rounds, self._before = rounds, done
        self._line = self._bar.add_task("", total=rounds, completed=done, metrics="", sent="")
        self._sent = sum(row.get("bytes_up", 0) + row.get("bytes_down", 0) for row in rows)
        self._metric = metric

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
        fields: dict[str, Any] = {"sent": f"{human_bytes(self._sent)} on the wire"}
        if record.metrics:
            fields["metrics"] = self._words(record.metrics)
        self._bar.update(self._line, completed=record.round, **fields)
        if self._log is not None:
            told = self._bar.tasks[self._line].fields
            words = ", ".join(filter(None, (f"round {record.round}/{self._rounds}", told["metrics"], told["sent"])))
            left = remaining(record.round - self._before, self._rounds - self._before, self._log.seconds)
            self._log.line(words + left, last=record.round == self._rounds)
        for line in refusals(record.refused):
            self._bar.console.print(f"round {record.round}: {line}", highlight=False)
        if record.void:
            self._bar.console.print(f"round {record.round}: void ({record.void})", highlight=False)

    def _words(self, metrics: Mapping[str, float]) -> str:
        if self._metric is not None and self._metric.name in metrics:
            return f"{self._metric.title} {self._metric.show(metrics[self._metric.name])}"
        return "  ".join(f"{name} {value:.4g}" for name, value in list(metrics.items())[:2])


def refusals(refused: Mapping[Any, str]) -> list[str]:
    """One line for every kind of reason, not for every client: a run that goes astray should say so and be readable."""
    kinds: dict[str, list[Any]] = {}
    for client, reason in refused.items():
        kinds.setdefault(reason.partition(":")[0], []).append(client)
    lines = []
    for clients in kinds.values():
        first, more = ", ".join(map(str, clients[:_NAMED])), len(clients) - _NAMED
        who = f"client{'s' * (len(clients) > 1)} {first}" + (f" and {more} more" if more > 0 else "")
        lines.append(f"{who} refused ({refused[clients[0]]})")
    return lines
