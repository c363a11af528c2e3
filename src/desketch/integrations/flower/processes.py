"""Flower's processes on this machine (`desketch.integrations.processes`), and the workers that stay beside them.

A client's resident worker leaves its pid and the moment it started in the client's folder, and is stopped only if both
still belong to it.  Nothing is sent to the outside: telemetry, update checks and usage statistics are switched off.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from desketch.integrations.flower.front import nginx
from desketch.integrations.flower.resident import MODULE, started
from desketch.integrations.processes import Prefix, Processes, environment, find_tool, free_port

__all__ = ["Deployment", "flower_environment", "free_port", "stop_worker", "tool"]


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of every Flower process: offline, its own home, quick to pick up tasks."""
    return {
        **environment(),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    }


def tool(name: str) -> str:
    """The path of a Flower command, beside this Python first."""
    return find_tool(name, "install Flower with: pip install 'desketch[flower]'")


@dataclass
class Deployment(Processes):
    """A SuperLink, its SuperNodes and runs; leaving the ``with`` block stops all of them.

    The names are "superlink", "front", "node 0", "run".  ``database`` lets the SuperLink remember its nodes and runs
    through a restart; it is SQLite, and Flower gives a run up when it stays locked for seconds, as many large objects
    on a busy machine can make it.
    """

    address: str = "127.0.0.1"
    port: int = 0
    database: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.port = self.port or free_port()
        self.home = self.folder / "flwr"
        self.home.mkdir(parents=True, exist_ok=True)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stop_workers()

    def environment(self) -> dict[str, str]:
        """Flower's own."""
        return flower_environment(self.home)

    def start_superlink(self, *options: str) -> None:
        """Start (or start again) the SuperLink."""
        command = [tool("flower-superlink"), *(options or ("--insecure",))]
        command += ["--host", self.address, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "superlink.db")] if self.database else []
        self.start("superlink", command)

    def start_front(self, configuration: Path) -> None:
        """Start (or start again) the nginx that stands before a secure SuperLink."""
        command = [nginx(), "-p", str(configuration.parent), "-e", str(configuration.parent / "error.log")]
        self.start("front", [*command, "-c", str(configuration)])

    def start_node(self, client: int, clients: int, *options: str, tunnel: Prefix = ()) -> None:
        """Start (or start again) the SuperNode of a client, behind its tunnel if it has one."""
        state = self.folder / f"client-{client}"
        config = f'partition-id={client} num-partitions={clients} state-folder="{state}"'
        command = [*tunnel, tool("flower-supernode"), *(options or ("--insecure",))]
        command += [] if tunnel else ["--superlink", f"{self.address}:{self.port}"]
        command += ["--port", str(free_port()), "--node-config", config]
        self.start(f"node {client}", command)

    def start_run(self, project: Path, *options: str) -> None:
        """Submit the project to the SuperLink and follow its log."""
        self.start("run", [tool("flwr"), "run", str(project), "desketch", "--stream", *options])

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
