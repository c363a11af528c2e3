"""A folder has one server at a time, and a dead one's lock is nobody's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from desketch.core.files import write_durably
from desketch.core.locks import sole_writer
from desketch.errors import RunError

HOLDER = """
import sys
from pathlib import Path
from desketch.core.locks import sole_writer
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


def test_a_file_is_replaced_whole_and_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    """The order of system calls: a new folder to the disk; then the bytes, the name, and the folder again."""
    path, calls = tmp_path / "deep" / "file", []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        real_sync(descriptor)

    def replace(source, target):
        calls.append("name")
        assert path.exists() == (len(calls) > 4)
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    write_durably(path, b"old")
    write_durably(path, "new")
    assert path.read_text() == "new"
    assert calls == ["folder", *["bytes", "name", "folder"] * 2]
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_durably(path, b"old")

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
