"""Stopping what was started and nothing else, and files that are their user's alone."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from desketch.integrations.flower.processes import Deployment, stop_worker
from desketch.integrations.flower.resident import MODULE, started

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def spawn():
    """Start commands that are gone when the test is."""
    children = []

    def start(command):
        children.append(subprocess.Popen(command, start_new_session=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def folder_of(deployment):
    folder = deployment.folder / "client-0"
    folder.mkdir()
    return folder


def test_a_stale_pid_is_nobody_s_death(tmp_path, spawn):
    """The pid in the file is another process's by now, with the start time of neither or of that process."""
    bystander = spawn(SLEEP)
    with Deployment(tmp_path / "run", port=1) as deployment:
        file = folder_of(deployment) / "worker.pid"
        file.write_text(str(bystander.pid))  # as earlier versions wrote it
    assert not file.exists()
    for text in (f"{bystander.pid} 1", f"{bystander.pid} {started(bystander.pid)}", "x y", "", "99999999 5"):
        file.write_text(text)
        assert not stop_worker(file)
        assert not file.exists()
    assert bystander.poll() is None


def test_a_worker_of_another_folder_or_another_time_is_left_alone(tmp_path, spawn):
    mine, other = tmp_path / "client-0", tmp_path / "client-1"
    mine.mkdir(), other.mkdir()
    worker = spawn([sys.executable, "-m", MODULE, str(mine)])
    born = started(worker.pid)
    (other / "worker.pid").write_text(f"{worker.pid} {born}")
    assert not stop_worker(other / "worker.pid")
    deadline = time.monotonic() + 60
    while not (mine / "worker.pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (mine / "worker.pid").read_text() == f"{worker.pid} {born}"
    (mine / "worker.pid").write_text(f"{worker.pid} {born - 1}")
    assert not stop_worker(mine / "worker.pid")
    assert worker.poll() is None
    (mine / "worker.pid").write_text(f"{worker.pid} {born}")
    assert stop_worker(mine / "worker.pid")
    assert worker.wait(timeout=30) == 0


def test_a_process_keeps_its_pid_until_it_was_stopped(tmp_path):
    """Nobody else can get it, so the group that is signalled is the one that was started."""
    with Deployment(tmp_path / "run", port=1) as deployment:
        deployment.start("node 0", [sys.executable, "-c", "pass"])
        pid = deployment.processes["node 0"].pid
        deadline = time.monotonic() + 60
        while deployment.running("node 0") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not deployment.running("node 0")
        os.kill(pid, 0)  # a zombie still
        deployment.stop("node 0")
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        deployment.start("node 0", SLEEP)
        child = deployment.processes["node 0"]
        deployment.stop("node 0", signal.SIGTERM)
        assert child.returncode == -signal.SIGTERM


def test_what_the_processes_write_is_private(tmp_path):
    before = os.umask(0o022)
    try:
        with Deployment(tmp_path / "run", port=1) as deployment:
            deployment.start("superlink", [sys.executable, "-c", "open('superlink.db', 'w'); import os; os.mkdir('s')"])
            deployment.processes["superlink"].wait(timeout=60)
    finally:
        os.umask(before)
    for name in ("superlink.db", "superlink.log", "s", "."):
        assert stat.S_IMODE(os.stat(tmp_path / "run" / name).st_mode) & 0o077 == 0, name
