"""Progress lines: plain where they are piped, with an estimate where the work is counted."""

from __future__ import annotations

import pytest

from desketch.cli.status import progress_line, time_left


@pytest.mark.parametrize(
    ("message", "seconds", "words"),
    [("1/4 first", 10, ""), ("2/4 second", 10, " (about 30 s left)"), ("4/4 last", 900, " (about 5 min left)"),
     ("no count", 10, "")],
)  # fmt: skip
def test_the_estimate_is_the_pace_of_what_is_done(message, seconds, words):
    assert time_left(message, seconds) == words


def test_a_pipe_gets_lines_and_quiet_gets_nothing(capsys):
    with progress_line() as tell:
        tell("1/2 begun")
    with progress_line(quiet=True) as tell:
        tell("1/2 begun")
    assert capsys.readouterr().err.split() == ["0", "s", "1/2", "begun"]
