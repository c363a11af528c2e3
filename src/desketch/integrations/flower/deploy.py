"""A deployment as a folder: the project, the keys if it is secured, and one script for every process.

Scripts of nodes start their SuperNode again when it ends: with authentication, Flower refuses a node that comes back
within a minute of vanishing, and accepts it later.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desketch.errors import RunError
from desketch.integrations.flower.processes import Deployment, flower_environment, tool
from desketch.integrations.flower.project import write_flower_home, write_project
from desketch.tasks.config import RunConfig

__all__ = ["Plan", "try_out", "wait_for_superlink"]

_SWITCHES = ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where a run's processes live and how they trust one another."""

    folder: Path
    config: RunConfig
    host: str = "127.0.0.1"
    port: int = 8000
    secure: bool = False

    @property
    def project(self) -> Path:
        """The Flower project."""
        return self.folder / "project"

    @property
    def keys(self) -> Path:
        """Certificates and keys; copy to a node only ``ca.pem`` and its own pair."""
        return self.folder / "keys"

    def write(self, **extra: float | int) -> None:
        """Write everything a deployment needs; existing keys are kept."""
        settings = self.config.model_copy(update={"out": self.config.out or str((self.folder / "server").resolve())})
        write_project(self.project, settings, {"min_nodes": self.config.clients, **extra})
        address = f"{self.host}:{self.port}"
        write_flower_home(self.folder / "flwr", address, self.keys.resolve() / "ca.pem" if self.secure else None)
        if self.secure and not (self.keys / "ca.pem").exists():
            from desketch.integrations.flower.credentials import make_node_key, make_server_certificate

            make_server_certificate(self.keys, self.host)
            for client in range(self.config.clients):
                make_node_key(self.keys, f"node-{client}")
        for name, (command, again) in self.commands().items():
            self._write_script(name, command, again)

    def superlink_options(self) -> list[str]:
        """How the SuperLink is trusted."""
        if not self.secure:
            return ["--insecure"]
        keys = self.keys.resolve()
        options = ["--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")]
        return [*options, "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"]

    def node_options(self, client: int) -> list[str]:
        """How a SuperNode trusts the SuperLink and proves itself."""
        if not self.secure:
            return ["--insecure"]
        keys = self.keys.resolve()
        pair = ["--auth-supernode-private-key", str(keys / f"node-{client}.key")]
        pair += ["--auth-supernode-public-key", str(keys / f"node-{client}.pub")]
        return ["--root-certificates", str(keys / "ca.pem"), *pair]

    def registrations(self) -> list[list[str]]:
        """Commands that make the nodes known to the SuperLink."""
        keys = [self.keys.resolve() / f"node-{client}.pub" for client in range(self.config.clients)]
        return [["flwr", "supernode", "register", str(key), "desketch"] for key in keys] if self.secure else []

    def commands(self) -> dict[str, tuple[list[list[str]], bool]]:
        """Script name -> (its commands, whether to start them again when they end)."""
        link = ["flower-superlink", *self.superlink_options(), "--host", self.host, "--port", str(self.port)]
        link += ["--disable-runtime-dependency-installation", "--database", "superlink.db"]
        table: dict[str, tuple[list[list[str]], bool]] = {"1-superlink.sh": ([link], False)}
        if self.secure:
            table["2-register-nodes.sh"] = (self.registrations(), False)
        for client in range(self.config.clients):
            state = (self.folder / f"client-{client}").resolve()
            node = ["flower-supernode", *self.node_options(client), "--superlink", f"{self.host}:{self.port}"]
            node += ["--port", str(self.port + 1001 + client), "--node-config"]
            node += [f'partition-id={client} num-partitions={self.config.clients} state-folder="{state}"']
            table[f"3-node-{client}.sh"] = ([node], True)
        table["4-run.sh"] = ([["flwr", "run", "project", "desketch", "--stream"]], False)
        return table

    def _write_script(self, name: str, commands: list[list[str]], again: bool) -> None:
        environment = flower_environment(Path("flwr"))
        lines = ["#!/bin/sh", "# written by desketch deploy", 'cd "$(dirname "$0")" || exit 1']
        lines += [f"export {switch}={environment[switch]}" for switch in _SWITCHES]
        lines.append('export FLWR_HOME="$PWD/flwr"')
        for command in commands:
            text = shlex.join(command)
            lines.append(f"while true; do {text}; sleep 10; done" if again else text)
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)


def try_out(
    plan: Plan,
    *,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    minutes: float = 60.0,
) -> list[dict[str, Any]]:
    """Start everything on loopback, train, stop everything; returns the rounds' rows."""
    plan.write()
    with Deployment(plan.folder.resolve(), plan.host, plan.port) as deployment:
        deployment.start_superlink(*plan.superlink_options())
        wait_for_superlink(deployment)
        for command in plan.registrations():
            _register(deployment, command)
        for client in range(plan.config.clients):
            deployment.start_node(client, plan.config.clients, *plan.node_options(client))
        deployment.start_run(plan.project.resolve())
        rows: list[dict[str, Any]] = []
        for row in follow(deployment, plan, minutes):
            rows.append(row)
            on_row(row)
        if len(rows) < plan.config.rounds:
            tail = deployment.log("run").read_text(errors="replace")[-2000:]
            raise RunError(
                f"the run ended after {len(rows)} of {plan.config.rounds} rounds; its log ends with:\n{tail}"
            )
        deployment.stop("run", signal.SIGINT)
        return rows


def follow(deployment: Deployment, plan: Plan, minutes: float) -> Iterator[dict[str, Any]]:
    """The rows of ``metrics.jsonl`` as they are written, until the run or the time ends."""
    path, seen = Path(plan.config.out or plan.folder / "server") / "metrics.jsonl", 0
    deadline = time.monotonic() + 60 * minutes
    while time.monotonic() < deadline:
        alive = deployment.running("run")
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        yield from map(json.loads, lines[seen:])
        seen = len(lines)
        if not alive:
            return
        time.sleep(0.2)


def wait_for_superlink(deployment: Deployment) -> None:
    """Wait until the SuperLink accepts connections."""
    import socket

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and deployment.running("superlink"):
        try:
            socket.create_connection((deployment.address, deployment.port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    tail = deployment.log("superlink").read_text(errors="replace")[-2000:]
    raise RunError(f"the SuperLink did not start; its log ends with:\n{tail}")


def _register(deployment: Deployment, command: list[str]) -> None:
    done = subprocess.run(
        [tool(command[0]), *command[1:]], env=flower_environment(deployment.home), capture_output=True, text=True
    )
    if done.returncode:
        raise RunError(f"a node could not be registered: {done.stdout[-500:]}{done.stderr[-500:]}")
