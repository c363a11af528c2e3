"""An MQTT deployment as a folder: the run's settings, keys if it is secured, the broker's configuration, scripts.

::

    run.yaml                the run, for every party            keys/       a folder of credentials for each party
    1-broker.sh             on the broker's machine             broker/     its configuration, access list and state
    2-client-0.sh ...       on each client's machine            client-0/   a client's replica, ledger and last answer
    3-server.sh             anywhere; beside the broker, say    server/     the run folder
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desketch.errors import InputError, RunError
from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.broker import Tab, mosquitto, write_broker
from desketch.integrations.mqtt.party import JOINED
from desketch.integrations.mqtt.web import PageServer, page_server
from desketch.integrations.processes import Processes
from desketch.tasks.config import RunConfig

__all__ = ["MqttPlan", "start", "start_broker", "try_out"]

_SCRIPT = """\
#!/bin/sh
# written by desketch deploy
umask 077
cd "$(dirname "$0")" || exit 1
{body}
"""
_BROKER = """\
PATH="$PATH:/usr/sbin:/usr/local/sbin"
command -v mosquitto >/dev/null || {{ echo "mosquitto is missing: apt-get install mosquitto" >&2; exit 1; }}
exec {command}"""


@dataclass(frozen=True, kw_only=True)
class MqttPlan:
    """Where a run's parties live and how they trust one another; ``host`` and ``port`` are the broker's.

    ``web`` is the port of a WebSocket listener of the broker; None: none.  ``tab`` is the last client, if that is
    a browser tab on this machine and no process.
    """

    folder: Path
    config: RunConfig
    host: str = "127.0.0.1"
    port: int = 8883
    secure: bool = False
    web: int | None = None
    tab: Tab | None = None
    round_timeout: float = 300.0

    @property
    def address(self) -> Address:
        """The broker's."""
        return Address(host=self.host, port=self.port, tls=self.secure)

    @property
    def keys(self) -> Path:
        """A folder of credentials for each party."""
        return self.folder / "keys"

    @property
    def processes(self) -> range:
        """The clients that are processes."""
        return range(self.config.clients - (self.tab is not None))

    @property
    def out(self) -> Path:
        """The server's run folder."""
        return Path(self.config.out or self.folder / "server")

    def write(self) -> None:
        """Write everything a deployment needs; existing keys are kept."""
        if not self.secure:
            try:
                Address.parse(self.address.url)
            except InputError:
                raise InputError(
                    f"a broker at {self.host} that lets everybody in is no deployment; add --secure, which makes keys"
                ) from None
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.secure:
            from desketch.integrations.mqtt.credentials import make_credentials

            make_credentials(self.keys, self.host, self.config.clients)
        self.config.save(self.folder / "run.yaml")
        keys = self.keys.resolve() / "broker" if self.secure else None
        folder, clients = (self.folder / "broker").resolve(), self.config.clients
        write_broker(folder, clients=clients, port=self.port, keys=keys, web=self.web, tab=self.tab)
        for name, command in self.commands().items():
            text = shlex.join(command)
            self._write_script(name, _BROKER.format(command=text) if name.startswith("1") else f"exec {text}")

    def commands(self, desketch: str = "desketch") -> dict[str, list[str]]:
        """Script name -> its command, to be run in the folder."""
        table = {"1-broker.sh": ["mosquitto", "-c", "broker/mosquitto.conf"]}
        for client in self.processes:
            table[f"2-client-{client}.sh"] = [desketch, *self.join(client)]
        return {**table, "3-server.sh": [desketch, *self.serve()]}

    def join(self, client: int) -> list[str]:
        """How a client is started, in the folder."""
        command = ["join", self.address.url, "--config", "run.yaml", "--state", f"client-{client}"]
        return command + (["--credentials", f"keys/client-{client}"] if self.secure else ["--client", str(client)])

    def serve(self) -> list[str]:
        """How the server is started, in the folder."""
        out = self.config.out or "server"
        command = ["serve", self.address.url, "--config", "run.yaml", "--out", out]
        command += ["--round-timeout", f"{self.round_timeout:g}"]
        return command + (["--credentials", "keys/server"] if self.secure else [])

    def traffic(self) -> dict[str, int]:
        """Bytes at the interfaces of all clients so far, as each client's own connection counted them."""
        told = [json.loads(path.read_text()) for path in sorted(self.folder.glob(f"client-*/{JOINED}"))]
        return {name: sum(one[name] for one in told) for name in ("interface_up", "interface_down")}

    def _write_script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(_SCRIPT.format(body=body), encoding="utf-8")
        path.chmod(0o755)


def start_broker(processes: Processes, plan: MqttPlan) -> None:
    """Start the broker and wait until it listens."""
    processes.start("broker", [mosquitto(), "-c", str((plan.folder / "broker" / "mosquitto.conf").resolve())])
    processes.wait_for_port("broker", "127.0.0.1", plan.port)


def start(processes: Processes, plan: MqttPlan) -> None:
    """Start broker, clients and server of a plan on this machine."""
    start_clients(processes, plan)
    start_server(processes, plan)


def start_clients(processes: Processes, plan: MqttPlan) -> None:
    """Start the broker and the clients."""
    start_broker(processes, plan)
    for client in plan.processes:
        start_client(processes, plan, client)


def start_client(processes: Processes, plan: MqttPlan, client: int) -> None:
    """Start (or start again) a client."""
    processes.start(f"client {client}", [sys.executable, "-m", "desketch", *plan.join(client)])


def start_server(processes: Processes, plan: MqttPlan) -> None:
    """Start (or start again) the server, which goes on from where its folder stands."""
    processes.start("server", [sys.executable, "-m", "desketch", *plan.serve()])


def try_out(
    plan: MqttPlan,
    *,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    on_page: Callable[[str], None] = lambda url: None,
    minutes: float = 60.0,
) -> list[dict[str, Any]]:
    """Start everything on loopback, train, stop everything; returns the rounds' rows, with bytes at the interface.

    Where a client is a tab, ``on_page`` is told its address, and the run begins when somebody has opened it.
    """
    mosquitto()  # refused here, before anything is written
    plan.write()
    rows: list[dict[str, Any]] = []
    with Processes(plan.folder.resolve()) as processes, _page(plan) as page:
        start_clients(processes, plan)
        if page is not None:
            on_page(page.url)
            _wait_for_tab(processes, page, minutes)
        start_server(processes, plan)
        for row in processes.follow("server", plan.out / "metrics.jsonl", minutes=minutes):
            rows.append(row | plan.traffic())
            on_row(rows[-1])
        for client in plan.processes:
            processes.wait(f"client {client}", seconds=10.0)
        if len(rows) < plan.config.rounds:
            raise RunError(
                f"the run ended after {len(rows)} of {plan.config.rounds} rounds; its log ends with:\n"
                f"{processes.tail('server')}"
            )
        rows[-1] |= plan.traffic()
    return rows


def _page(plan: MqttPlan) -> AbstractContextManager[PageServer | None]:
    return nullcontext() if plan.tab is None else page_server(plan.config, plan.tab)


def _wait_for_tab(processes: Processes, page: PageServer, minutes: float) -> None:
    deadline = time.monotonic() + 60 * minutes
    while not page.opened.wait(0.5):
        if not processes.running("broker"):
            raise RunError(f"the broker has ended; its log ends with:\n{processes.tail('broker')}")
        if time.monotonic() > deadline:
            raise RunError(f"nobody opened the page in {minutes:g} minutes")
