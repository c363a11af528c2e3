"""Flower's processes on this machine: started here, stopped here, by pid and nothing else.

Each process leads a group of its own, so that stopping it also stops what it started (Flower's executors and apps).
Its pid stays its own until it was stopped, since nobody reaps it before.  A client's resident worker leaves its pid and
the moment it started in the client's folder, and is stopped only if both still belong to it.  What the processes write
is their user's alone.  Nothing is sent to the outside: telemetry, update checks and usage statistics are switched off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from desketch.errors import RunError
from desketch.integrations.flower.front import nginx
from desketch.integrations.flower.resident import MODULE, started

__all__ = ["Deployment", "flower_environment", "free_port", "stop_worker", "tool"]

Prefix = Sequence[str]
PRIVATE = 0o077  # the umask of every process: state, database and logs are their user's alone


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of every Flower process: offline, its own home, quick to pick up tasks."""
    own = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([own, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def tool(name: str) -> str:
    """The path of a Flower command, beside this Python first."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RunError(f"{name} not found; install Flower with: pip install 'desketch[flower]'")
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@dataclass
class Deployment:
    """A SuperLink, its SuperNodes and runs; leaving the ``with`` block stops all of them.

    ``wrap`` maps a role ("superlink", "node 0", "run") to a command prefix, e.g. a network namespace's.  ``database``
    lets the SuperLink remember its nodes and runs through a restart; it is SQLite, and Flower gives a run up when it
    stays locked for seconds, as many large objects on a busy machine can make it.
    """

    folder: Path
    address: str = "127.0.0.1"
    port: int = 0
    database: bool = True
    wrap: Mapping[str, Prefix] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = self.port or free_port()
        self.home = self.folder / "flwr"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.home.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)
        self._stop_workers()

    def start_superlink(self, *options: str) -> None:
        """Start (or start again) the SuperLink."""
        command = [tool("flower-superlink"), *(options or ("--insecure",))]
        command += ["--host", self.address, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "superlink.db")] if self.database else []
        self._start("superlink", command)

    def start_front(self, configuration: Path) -> None:
        """Start (or start again) the nginx that stands before a secure SuperLink."""
        command = [nginx(), "-p", str(configuration.parent), "-e", str(configuration.parent / "error.log")]
        self._start("front", [*command, "-c", str(configuration)])

    def start_node(self, client: int, clients: int, *options: str, tunnel: Prefix = ()) -> None:
        """Start (or start again) the SuperNode of a client, behind its tunnel if it has one."""
        state = self.folder / f"client-{client}"
        config = f'partition-id={client} num-partitions={clients} state-folder="{state}"'
        command = [*tunnel, tool("flower-supernode"), *(options or ("--insecure",))]
        command += [] if tunnel else ["--superlink", f"{self.address}:{self.port}"]
        command += ["--port", str(free_port()), "--node-config", config]
        self._start(f"node {client}", command)

    def start_run(self, project: Path, *options: str) -> None:
        """Submit the project to the SuperLink and follow its log."""
        self._start("run", [tool("flwr"), "run", str(project), "desketch", "--stream", *options])

    def log(self, name: str) -> Path:
        """Where a process writes."""
        return self.folder / f"{name.replace(' ', '-')}.log"

    def running(self, name: str) -> bool:
        """Whether a process is alive."""
        return name in self.processes and not _ended(self.processes[name])

    def stop(self, name: str, sign: int = signal.SIGTERM) -> None:
        """Stop a process and its group: asked politely first, then killed."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        _signal_group(process, sign)
        deadline = time.monotonic() + 10
        while not _ended(process) and time.monotonic() < deadline:
            time.sleep(0.02)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, command: list[str]) -> None:
        self.stop(name)
        with os.fdopen(os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.wrap.get(name, ()), *command],
                env=flower_environment(self.home),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=PRIVATE,
            )

    def _stop_workers(self) -> None:
        for file in self.folder.glob("client-*/worker.pid"):
            stop_worker(file)


def stop_worker(file: Path) -> bool:
    """Stop the worker that wrote the file; whether it was still there.

    A pid that another process has by now is left alone: the worker's start time and command must be those of the pid,
    and the signal goes through a handle of the process that was checked.
    """
    try:
        pid, born = map(int, file.read_text().split())
        handle = os.pidfd_open(pid)
    except (OSError, ValueError):
        file.unlink(missing_ok=True)
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        mine = started(pid) == born and MODULE.encode() in command and os.fsencode(file.parent) in command
        if mine:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except (OSError, ValueError):  # it ended meanwhile
        mine = False
    finally:
        os.close(handle)
    file.unlink(missing_ok=True)
    return mine


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ended; it is not reaped, so that its pid, which is its group's, goes to nobody else."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: subprocess.Popen[bytes], sign: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
