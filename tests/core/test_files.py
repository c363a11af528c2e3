"""A folder has one server at a time, and a dead one's lock is nobody's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from desketch.core.files import sole_writer
from desketch.errors import RunError

HOLDER = """
import sys
from pathlib import Path
from desketch.core.files import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_server_is_refused_until_the_first_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process"), sole_writer(tmp_path, seconds=0):
            pytest.fail("two writers in one folder")
        holder.kill()
    with sole_writer(tmp_path, seconds=30):
        pass


def test_without_a_folder_there_is_nothing_to_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sole_writer(None), sole_writer(None):
        assert list(tmp_path.iterdir()) == []
