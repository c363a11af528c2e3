"""A folder has one writer: on a local disk by the kernel's lock, over a network by an owner file that can go stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from desketch.core import locks
from desketch.core.locks import Owner, filesystem, sole_writer
from desketch.errors import RunError

RACER = """
import sys
from pathlib import Path
from desketch.core import locks
from desketch.errors import RunError
folder, kind = Path(sys.argv[1]), sys.argv[2]
if kind != "local":
    locks.filesystem = lambda folder: "nfs"
if kind == "nolock":
    locks._flock = lambda descriptor: True  # as NFS mounted with nolock on several machines: everybody gets it
if kind == "none":
    locks._flock = lambda descriptor: None  # a file system without locks
print("ready", flush=True)
sys.stdin.readline()
try:
    with locks.sole_writer(folder, seconds=0):
        print("runs", flush=True)
        sys.stdin.readline()
except RunError as error:
    print("refused", error, flush=True)
"""


def race(folder, kind, n=4):
    """What n processes say that try at once; the winner holds on until all have said something."""
    command = [sys.executable, "-c", RACER, str(folder), kind]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(n)]
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * n
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.stdout.readline() for racer in racers]
    finally:
        for racer in racers:
            racer.communicate("\n")
    return said


@pytest.mark.parametrize("kind", ["local", "nfs", "nolock", "none"])
def test_of_processes_released_at_once_exactly_one_runs(kind, tmp_path):
    for _ in range(2):  # and the folder is free again afterwards
        said = race(tmp_path, kind)
        assert said.count("runs\n") == 1
        assert sum(line.startswith("refused") for line in said) == 3


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(locks, "filesystem", lambda folder: "nfs4")


def leave(folder, **changes):
    """An owner file as a dead writer leaves it."""
    owner = replace(Owner.here(), **changes)
    (folder / "writer.lock.owner").write_text(json.dumps(asdict(owner)))


@pytest.mark.parametrize(
    "changes", [{"boot": "an earlier boot"}, {"start": "1"}, {"pid": 2**22 + 1}], ids=["rebooted", "reused pid", "dead"]
)
def test_the_lock_of_a_process_that_is_gone_is_stale(changes, tmp_path, network):
    leave(tmp_path, **changes)
    with sole_writer(tmp_path, seconds=0):
        assert json.loads((tmp_path / "writer.lock.owner").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "writer.lock.owner").exists()


@pytest.mark.parametrize("changes", [{}, {"host": "far"}, {"machine": "other"}, {"host": "far", "boot": "other"}])
def test_a_living_writer_and_one_of_another_machine_are_refused_with_advice(changes, tmp_path, network):
    leave(tmp_path, **changes)
    with pytest.raises(RunError, match=r"delete that file"), sole_writer(tmp_path, seconds=0):
        pytest.fail("two writers")
    assert (tmp_path / "writer.lock.owner").exists()


def test_an_owner_file_that_cannot_be_read_is_somebodys(tmp_path, network):
    (tmp_path / "writer.lock.owner").write_text("{")
    with pytest.raises(RunError, match="somebody"), sole_writer(tmp_path, seconds=0):
        pytest.fail("two writers")


def test_without_kernel_locks_a_stale_owner_is_not_taken_over(tmp_path, network, monkeypatch):
    """Two that both find it stale could both take it: then somebody must look."""
    monkeypatch.setattr(locks, "_flock", lambda descriptor: None)
    leave(tmp_path, boot="an earlier boot")
    with pytest.raises(RunError, match="delete that file"), sole_writer(tmp_path, seconds=0):
        pytest.fail("two writers")


def test_a_local_disk_needs_no_owner_file(tmp_path):
    assert filesystem(tmp_path) in locks._LOCAL
    with sole_writer(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["writer.lock"]


def test_the_file_system_is_that_of_the_innermost_mount():
    assert filesystem(Path("/proc/self")) == "proc"
    assert filesystem(Path("/proc/self")) not in locks._LOCAL
