"""Flower's processes on this machine: started here, stopped here, by pid and nothing else.

Each process leads a group of its own, so that stopping it also stops what it started (Flower's executors and apps); a
client's resident worker leaves its pid in the client's folder and is stopped by it.  Nothing is sent to the outside:
telemetry, update checks and usage statistics are switched off.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from desketch.errors import RunError

__all__ = ["Deployment", "flower_environment", "free_port", "tool"]

Prefix = Sequence[str]


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

    def start_node(self, client: int, clients: int, *options: str) -> None:
        """Start (or start again) the SuperNode of a client."""
        state = self.folder / f"client-{client}"
        config = f'partition-id={client} num-partitions={clients} state-folder="{state}"'
        command = [
            tool("flower-supernode"),
            *(options or ("--insecure",)),
            "--superlink",
            f"{self.address}:{self.port}",
        ]
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
        return name in self.processes and self.processes[name].poll() is None

    def stop(self, name: str, sign: int = signal.SIGTERM) -> None:
        """Stop a process and its group: asked politely first, then killed."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        _signal_group(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, command: list[str]) -> None:
        self.stop(name)
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.wrap.get(name, ()), *command],
                env=flower_environment(self.home),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _stop_workers(self) -> None:
        for file in self.folder.glob("client-*/worker.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
            file.unlink(missing_ok=True)


def _signal_group(pid: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, sign)
