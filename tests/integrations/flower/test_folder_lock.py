"""A folder has one server at a time, and a dead one's lock is nobody's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from desketch.errors import RunError
from desketch.integrations.flower.folder_lock import sole_server

HOLDER = """
import sys
from pathlib import Path
from desketch.integrations.flower.folder_lock import sole_server
with sole_server(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_server_is_refused_until_the_first_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another server"), sole_server(tmp_path, seconds=0):
            pytest.fail("two servers in one folder")
        holder.kill()
    with sole_server(tmp_path, seconds=30):
        pass


def test_without_a_folder_there_is_nothing_to_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sole_server(None), sole_server(None):
        assert list(tmp_path.iterdir()) == []
