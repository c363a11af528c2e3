"""A deployment as a folder: the project, the keys and the front if it is secured, and one script for every process.

A secure one lets in exactly the listed parties: its SuperLink listens on loopback, the front (`front`) on the network,
a node comes through its tunnel (`tunnel`), and who each node is was settled when it was enrolled (`enrol`).

Scripts of nodes start their SuperNode again when it ends: with authentication, Flower refuses a node that comes back
within a minute of vanishing, and accepts it later.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desketch.errors import RunError
from desketch.integrations.flower import front
from desketch.integrations.flower.enrol import ENROLLED, enrol, with_flwr
from desketch.integrations.flower.processes import Deployment, flower_environment, tool
from desketch.integrations.flower.project import write_flower_home, write_project
from desketch.tasks.config import RunConfig

__all__ = ["DeploymentPlan", "start", "try_out", "wait_for_superlink"]

_NGINX = [
    'PATH="$PATH:/usr/sbin:/usr/local/sbin"',
    "command -v nginx >/dev/null || {",
    '  echo "nginx is missing: without it nobody can reach the SuperLink; apt-get install nginx-light" >&2; exit 1; }',
]
_SWITCHES = ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL")


@dataclass(frozen=True, kw_only=True)
class DeploymentPlan:
    """Where a run's processes live and how they trust one another.

    ``host`` and ``port`` are what nodes connect to; ``behind`` is the port of a secure SuperLink on loopback.
    """

    folder: Path
    config: RunConfig
    host: str = "127.0.0.1"
    port: int = 8000
    secure: bool = False
    behind: int = 0

    @property
    def superlink(self) -> tuple[str, int]:
        """Where the SuperLink itself listens."""
        return ("127.0.0.1", self.behind or self.port + 1000) if self.secure else (self.host, self.port)

    @property
    def names(self) -> list[str]:
        """The listed nodes."""
        return [f"node-{client}" for client in range(self.config.clients)]

    @property
    def project(self) -> Path:
        """The Flower project."""
        return self.folder / "project"

    @property
    def keys(self) -> Path:
        """Certificates and keys; copy to a node only ``ca.pem`` and the four files with its name."""
        return self.folder / "keys"

    @property
    def front(self) -> Path:
        """The front's configuration and logs."""
        return self.folder / "front"

    def write(self, **extra: float | int) -> None:
        """Write everything a deployment needs; existing keys are kept."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        out = self.config.out or str((self.folder / "server").resolve())
        Path(out).mkdir(parents=True, exist_ok=True, mode=0o700)
        settings: dict[str, Any] = {"min_nodes": self.config.clients, **extra}
        if self.secure:
            settings["enrolled"] = str((self.folder / ENROLLED).resolve())
        write_project(self.project, self.config.model_copy(update={"out": out}), settings)
        address, port = self.superlink
        certificate = self.keys.resolve() / "ca.pem" if self.secure else None
        write_flower_home(self.folder / "flwr", f"{address}:{port}", certificate)
        if self.secure:
            self._write_front()
        for name, (command, again) in self.commands().items():
            self._write_script(name, command, again)

    def _write_front(self) -> None:
        from desketch.integrations.flower.credentials import header_of, make_credentials

        make_credentials(self.keys, self.host, self.names)
        front.write_front(
            self.front.resolve(),
            credentials=self.keys.resolve(),
            keys={name: header_of(self.keys / f"{name}.pub") for name in self.names},
            address=self.host,
            port=self.port,
            behind=self.superlink[1],
        )

    def superlink_options(self) -> list[str]:
        """How the SuperLink is trusted."""
        if not self.secure:
            return ["--insecure"]
        keys = self.keys.resolve()
        options = ["--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")]
        return [*options, "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"]

    def node_options(self, client: int) -> list[str]:
        """How a SuperNode proves itself."""
        if not self.secure:
            return ["--insecure"]
        return ["--auth-supernode-private-key", str(self.keys.resolve() / f"node-{client}.key")]

    def tunnel(self, client: int, python: str = "python3") -> list[str]:
        """What a SuperNode of a secure deployment is started by."""
        if not self.secure:
            return []
        keys = self.keys.resolve()
        options = ["--to", f"{self.host}:{self.port}", "--authority", str(keys / "ca.pem")]
        options += ["--certificate", str(keys / f"node-{client}.crt"), "--"]
        return [python, "-m", "desketch.integrations.flower.tunnel", *options]

    def commands(self) -> dict[str, tuple[list[list[str]], bool]]:
        """Script name -> (its commands, whether to start them again when they end)."""
        address, port = self.superlink
        link = ["flower-superlink", *self.superlink_options(), "--host", address, "--port", str(port)]
        link += ["--disable-runtime-dependency-installation", "--database", "superlink.db"]
        table: dict[str, tuple[list[list[str]], bool]] = {"1-superlink.sh": ([link], False)}
        if self.secure:
            table["2-register-nodes.sh"] = ([["python3", "-m", "desketch.integrations.flower.enrol", "."]], False)
            start = ["nginx", "-p", "front", "-e", "error.log", "-c", "nginx.conf"]
            table["2-front.sh"] = ([start], False)
        for client in range(self.config.clients):
            state = (self.folder / f"client-{client}").resolve()
            node = [*self.tunnel(client), "flower-supernode", *self.node_options(client)]
            node += [] if self.secure else ["--superlink", f"{self.host}:{self.port}"]
            node += ["--port", str(self.port + 1001 + client), "--node-config"]
            node += [f'partition-id={client} num-partitions={self.config.clients} state-folder="{state}"']
            table[f"3-node-{client}.sh"] = ([node], True)
        table["4-run.sh"] = ([["flwr", "run", "project", "desketch", "--stream"]], False)
        return table

    def _write_script(self, name: str, commands: list[list[str]], again: bool) -> None:
        environment = flower_environment(Path("flwr"))
        lines = ["#!/bin/sh", "# written by desketch deploy", "umask 077", 'cd "$(dirname "$0")" || exit 1']
        lines += [f"export {switch}={environment[switch]}" for switch in _SWITCHES]
        lines.append('export FLWR_HOME="$PWD/flwr"')
        for command in commands:
            lines += _NGINX if command[0] == "nginx" else []
            text = shlex.join(command)
            lines.append(f"while true; do {text}; sleep 10; done" if again else text)
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)


def try_out(
    plan: DeploymentPlan,
    *,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    minutes: float = 60.0,
) -> list[dict[str, Any]]:
    """Start everything on loopback, train, stop everything; returns the rounds' rows."""
    if plan.secure:
        front.nginx()  # refused here, before anything is written
    plan.write()
    with Deployment(plan.folder.resolve(), *plan.superlink) as deployment:
        start(deployment, plan)
        deployment.start_run(plan.project.resolve())
        rows: list[dict[str, Any]] = []
        metrics = Path(plan.config.out or plan.folder / "server") / "metrics.jsonl"
        for row in deployment.follow("run", metrics, minutes=minutes):
            rows.append(row)
            on_row(row)
        if len(rows) < plan.config.rounds:
            raise RunError(
                f"the run ended after {len(rows)} of {plan.config.rounds} rounds; its log ends with:\n"
                f"{deployment.tail('run')}"
            )
        deployment.stop("run", signal.SIGINT)
        return rows


def start(deployment: Deployment, plan: DeploymentPlan) -> None:
    """Start the SuperLink, the front and the nodes of a plan on this machine."""
    deployment.start_superlink(*plan.superlink_options())
    wait_for_superlink(deployment)
    if plan.secure:
        enrol(plan.folder.resolve(), plan.config.clients, with_flwr(flower_environment(deployment.home), tool("flwr")))
        deployment.start_front(plan.front.resolve() / "nginx.conf")
        deployment.wait_for_port("front", plan.host, plan.port)
    for client in range(plan.config.clients):
        tunnel = plan.tunnel(client, sys.executable)
        deployment.start_node(client, plan.config.clients, *plan.node_options(client), tunnel=tunnel)


def wait_for_superlink(deployment: Deployment) -> None:
    """Wait until the SuperLink accepts connections."""
    deployment.wait_for_port("superlink", deployment.address, deployment.port)
