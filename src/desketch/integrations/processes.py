"""Processes of a deployment on this machine: started here, stopped here, by pid and nothing else.

Each process leads a group of its own, so that stopping it also stops what it started.  Its pid stays its own until it
was stopped, since nobody reaps it before.  What the processes write is their user's alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from desketch.errors import RunError

__all__ = ["Prefix", "Processes", "environment", "find_tool", "free_port"]

Prefix = Sequence[str]
PRIVATE = 0o077  # the umask of every process: state, database and logs are their user's alone
_PORTS = (10_240, 32_768)  # Linux takes 32768 and above for outgoing connections, others 49152 and above
_SYSTEM = ("/usr/sbin", "/usr/local/sbin")  # where packages put servers, and users' PATH often does not look


def environment() -> dict[str, str]:
    """The environment of a process: this Python's commands first, one thread unless more were asked for."""
    own = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([own, os.environ.get("PATH", "")]),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def find_tool(name: str, advice: str) -> str:
    """The path of a command, beside this Python first; where it is missing, ``advice`` says what to install."""
    beside = Path(sys.executable).parent / name
    path = os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM])
    found = str(beside) if beside.exists() else shutil.which(name, path=path)
    if found is None:
        raise RunError(f"{name} not found; {advice}")
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now, below those that the system gives to outgoing connections: they would take it."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port


@dataclass
class Processes:
    """Named processes of one folder; leaving the ``with`` block stops all of them, the last started first.

    ``wrap`` maps a process's name to a command prefix, e.g. a network namespace's.
    """

    folder: Path
    wrap: Mapping[str, Prefix] = field(default_factory=dict, kw_only=True)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)

    def environment(self) -> dict[str, str]:
        """What every process finds in its environment."""
        return environment()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start (or start again) a process; what it writes goes to its log."""
        self.stop(name)
        with os.fdopen(os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.wrap.get(name, ()), *command],
                env=self.environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=PRIVATE,
            )

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

    def signal(self, name: str, sign: int) -> None:
        """Signal a process and its group, e.g. to hold it and let it go on."""
        _signal_group(self.processes[name], sign)

    def wait_for_port(self, name: str, address: str, port: int, *, seconds: float = 60.0) -> None:
        """Wait until the process accepts connections; one that ended is an error that shows the end of its log."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running(name):
            try:
                socket.create_connection((address, port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RunError(f"the {name} did not start; its log ends with:\n{self.tail(name)}")

    def wait(self, name: str, *, seconds: float) -> bool:
        """Wait for a process to end by itself; whether it did."""
        deadline = time.monotonic() + seconds
        while self.running(name) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.running(name)

    def follow(self, name: str, rows: Path, *, minutes: float) -> Iterator[dict[str, Any]]:
        """The rows of a ``metrics.jsonl`` as they are written, until their process or the time ends."""
        deadline, seen = time.monotonic() + 60 * minutes, 0
        while time.monotonic() < deadline:
            alive = self.running(name)
            lines = rows.read_text(encoding="utf-8").split("\n")[:-1] if rows.exists() else []
            yield from map(json.loads, lines[seen:])
            seen = len(lines)
            if not alive:
                return
            time.sleep(0.2)

    def tail(self, name: str) -> str:
        """The end of a process's log."""
        try:
            return self.log(name).read_text(errors="replace")[-2000:]
        except OSError:
            return "(no log)"


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ended; it is not reaped, so that its pid, which is its group's, goes to nobody else."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: subprocess.Popen[bytes], sign: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
