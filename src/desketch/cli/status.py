"""Progress of long work on stderr: one line that changes at a terminal, plain lines now and then in a pipe."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["progress_line", "time_left"]

_EVERY = 2.0  # seconds between plain lines


@contextmanager
def progress_line(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show each message it is called with; one that begins with ``3/7`` also says how long the rest may take."""
    console, started, last = Console(stderr=True, quiet=quiet), time.monotonic(), -_EVERY

    def line(message: str) -> None:
        nonlocal last
        now = time.monotonic() - started
        if not quiet and now - last >= _EVERY:
            last = now
            sys.stderr.write(f"{now:5.0f} s  {message}{time_left(message, now)}\n")
            sys.stderr.flush()

    if quiet or not console.is_terminal:
        yield line
        return
    with console.status("starting") as status:
        yield lambda message: status.update(message + time_left(message, time.monotonic() - started))


def time_left(message: str, seconds: float) -> str:
    """An estimate from the parts done before this one, if the message counts them and any is done."""
    counted = re.match(r"(\d+)/(\d+) ", message)
    if counted is None or int(counted[1]) < 2:
        return ""
    done, total = int(counted[1]) - 1, int(counted[2])
    left = seconds * (total - done) / done
    return f" (about {left:.0f} s left)" if left < 90 else f" (about {left / 60:.0f} min left)"
