"""Clocks for the parts of a Flower round: one line a message in the client's own folder, written where the time passes.

``parts.jsonl`` is written by the ClientApp's process (start-up, work, when it left), ``worker.jsonl`` by whoever runs
the local steps (all of the answer, and the steps in it).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from desketch.integrations.flower.identity import state_folder

__all__ = ["note", "process_age", "round_of", "steps_timed", "timed"]


def process_age() -> float:
    """Seconds since the kernel started this process."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def note(folder: Path, name: str, **values: float) -> None:
    """Append a line."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def round_of(message: Message) -> int:
    """The round of a message: Flower's FedAvg puts it into the config, desketch into the message's group."""
    config = message.content.config_records.get("config", {})
    return int(config.get("server-round") or message.metadata.group_id)


def timed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod that notes how long the process took to get here and how long the app took to answer."""
    startup, t, entered = process_age(), round_of(message), time.perf_counter()
    reply = call_next(message, context)
    folder = state_folder(context)
    note(folder, "parts.jsonl", t=t, startup=startup, work=time.perf_counter() - entered, left=time.time())
    return reply


@contextmanager
def steps_timed(spent: list[float]) -> Iterator[None]:
    """Add the seconds of every `local_update` in the block to ``spent``."""
    from desketch.fed import engine

    plain = engine.local_update

    def measured(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return plain(*args, **options)
        finally:
            spent.append(time.perf_counter() - started)

    engine.local_update = measured
    try:
        yield
    finally:
        engine.local_update = plain
