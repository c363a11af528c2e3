"""What long work is doing, on the standard error: one line that changes at a terminal, plain lines in a pipe."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["Log", "progress_line", "remaining"]

_EVERY, _RARER = 2.0, 1.05  # seconds between plain lines at first, and how much later the next is in a long run


class Log:
    """Plain lines with the seconds so far: the first at once, then ever rarer; a day leaves some hundred."""

    def __init__(self) -> None:
        self._began, self._next = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Since the work began."""
        return time.monotonic() - self._began

    def line(self, message: str, *, last: bool = False) -> None:
        """Write the message if it is time for one; the last one always."""
        now = self.seconds
        if last or now >= self._next:
            self._next = max(now + _EVERY, now * _RARER)
            sys.stderr.write(f"{now:5.0f} s  {message}\n")
            sys.stderr.flush()


@contextmanager
def progress_line(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show each message it is called with; one that begins with ``3/7`` also says how long the rest may take."""
    console, log = Console(stderr=True), Log()
    if quiet:
        yield lambda message: None
    elif not console.is_terminal:
        yield lambda message: log.line(message + _estimate(message, log.seconds))
    else:
        with console.status("starting") as status:
            yield lambda message: status.update(message + _estimate(message, log.seconds))


def remaining(done: int, total: int, seconds: float) -> str:
    """How long the rest may take at the pace so far, in words; nothing before there is a pace or when all is done."""
    if not 0 < done < total:
        return ""
    left = seconds * (total - done) / done
    return f" (about {left:.0f} s left)" if left < 90 else f" (about {left / 60:.0f} min left)"


def _estimate(message: str, seconds: float) -> str:
    counted = re.match(r"(\d+)/(\d+) ", message)  # the third of seven is being worked on: two are done
    return remaining(int(counted[1]) - 1, int(counted[2]), seconds) if counted else ""
