"""The server of a configured run over any carrier: its folder ends as a run folder, with model and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from desketch.core.locks import sole_writer
from desketch.core.rows import read_rows
from desketch.fed.rounds import Observer
from desketch.session.carrier import Carrier
from desketch.session.server import ServerSession
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import prepare
from desketch.tasks.parties import configured_rounds, server_session
from desketch.tasks.summary import summarise, write_outcome

__all__ = ["serve_configured"]


def serve_configured(
    config: RunConfig,
    folder: Path,
    carry: Callable[[ServerSession], Carrier],
    *,
    enrolled: Mapping[int, int] | None = None,
    nodes: int = 1,
    seconds: float = 300.0,
    repeat_after: float | None = None,
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Rounds from where the folder stands to the configuration's last, then summary, model and report."""
    setup = prepare(config)
    with sole_writer(folder):  # before its state is read
        session = server_session(setup, folder, enrolled)
        rounds = configured_rounds(
            setup,
            session,
            carry(session),
            folder=folder,
            nodes=nodes,
            seconds=seconds,
            repeat_after=repeat_after,
            observer=observer,
        )
        rounds.run(config.rounds)
        config.save(folder / "config.yaml")
        rows = read_rows(folder / "metrics.jsonl").rows
        summary = summarise(setup, session, rows)
        write_outcome(folder, setup, session, summary)
        if rows:
            from desketch.report import write_report  # it draws plots: not before they are wanted

            write_report(folder)
    return summary
