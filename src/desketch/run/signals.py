"""Signals that end a run in good order: Ctrl-C, SIGTERM (a scheduler, a shutdown) and SIGHUP (a closed terminal).

The first one ends the run after the round it comes in, with everything written; a second one acts at once, as usual.
A signal that is ignored when the run starts, as SIGHUP is under nohup, stays ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals

from desketch.fed.rounds import Observer

__all__ = ["Stop", "stop_on_signals"]

_SIGNALS = (Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP)


class Stop(Observer):
    """Asks the run to end; ``signal`` says why."""

    signal: Signals | None = None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Catch the signals in the block."""
    stop = Stop()
    before = {one: signal.getsignal(one) for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN}

    def handle(number: int, frame: object) -> None:
        stop.stop, stop.signal = True, Signals(number)
        _restore()

    def _restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    for one in before:
        signal.signal(one, handle)
    try:
        yield stop
    finally:
        _restore()
