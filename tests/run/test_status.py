"""Progress lines: plain where they are piped, ever rarer, with an estimate where the work is counted."""

from __future__ import annotations

import pytest

from desketch.run import status
from desketch.run.status import Log, progress_line, remaining


@pytest.fixture
def clock(monkeypatch):
    """The time, to be set by the test."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(status, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [(0, 4, 10, ""), (1, 4, 10, " (about 30 s left)"), (3, 4, 900, " (about 5 min left)"), (4, 4, 10, "")],
)
def test_the_estimate_is_the_pace_of_what_is_done(done, total, seconds, words):
    assert remaining(done, total, seconds) == words


def test_a_pipe_gets_lines_and_quiet_gets_nothing(capsys, clock):
    with progress_line() as tell:
        tell("1/2 begun")
        clock.now += 10
        tell("2/2 almost")
        tell("no count")  # at once: not worth a line of its own
    with progress_line(quiet=True) as tell:
        tell("1/2 begun")
    assert capsys.readouterr().err.splitlines() == ["    0 s  1/2 begun", "   10 s  2/2 almost (about 10 s left)"]


def test_a_long_run_leaves_few_lines_and_always_its_last(capsys, clock):
    log = Log()
    for _ in range(24 * 3600):
        log.line("going on")
        clock.now += 1
    log.line("done", last=True)
    lines = capsys.readouterr().err.splitlines()
    assert 100 < len(lines) < 300
    assert lines[-1] == "86400 s  done"
