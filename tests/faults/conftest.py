"""A real deployment on loopback: a SuperLink, SuperNodes and a run, all of whose processes can be killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from desketch.core.tree import unpack_tree
from desketch.fed import Attendance, run
from desketch.integrations.flower.deploy import DeploymentPlan, wait_for_superlink
from desketch.integrations.flower.processes import Deployment, free_port
from desketch.tasks import RunConfig, prepare

SETTINGS = {
    "task": "digits",
    "model": "mlp:32",
    "partition": "iid",
    "compression": 10,
    "codec": "int4",
    "local_steps": 20,
    "eta_local": 0.2,
}
PATIENCE = 600.0  # seconds until a test gives up; a machine may be busy


@dataclass(frozen=True, kw_only=True)
class Recorded(Attendance):
    """The clients whose updates the server says it used."""

    rows: tuple[tuple[int, ...], ...]

    def cohort(self, t, clients):
        return list(self.rows[t - 1])


class Bed:
    """A deployment under test, and what it left on disk."""

    def __init__(self, folder, clients, rounds, round_timeout):
        self.folder, self.clients = folder, clients
        self.config = RunConfig(**SETTINGS, clients=clients, rounds=rounds, out=str(folder / "server"))
        self.plan = DeploymentPlan(folder=folder, config=self.config, port=free_port())
        self.plan.write(round_timeout=round_timeout)
        self.deployment = Deployment(folder, "127.0.0.1", self.plan.port)

    def start(self):
        self.start_superlink()
        for client in range(self.clients):
            self.start_node(client)
        self.start_run()

    def start_superlink(self):
        self.deployment.start_superlink()
        wait_for_superlink(self.deployment)

    def start_node(self, client):
        self.deployment.start_node(client, self.clients)

    def start_run(self):
        self.deployment.start_run(self.plan.project)

    def rows(self):
        path = self.folder / "server" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def until(self, condition, what):
        """Poll until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                logs = [f"{path.name}:\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log"))]
                pytest.fail(f"waited {PATIENCE:g} s for: {what}\n" + "\n".join(logs))
            time.sleep(0.05)

    def until_round(self, t):
        """Wait for the end of round t."""
        self.until(lambda: len(self.rows()) >= t, f"the end of round {t}")

    def until_training(self, client):
        """Hold the client's worker until an order waits for it: the client is then in mid-round, and stays there."""
        os.kill(self.worker(client), signal.SIGSTOP)
        self.until(lambda: self.has_order(client) and self.client_app(client), f"an order for client {client}")

    def has_order(self, client):
        """Whether its SuperNode, since it last started, has taken an order that it has not answered."""
        log = self.deployment.log(f"node {client}").read_text(errors="replace")
        session = log.rpartition("Starting Flower SuperNode")[2]
        return session.count("Receiving: train") > session.count("Sending: train")

    def worker(self, client):
        return int((self.folder / f"client-{client}" / "worker.pid").read_text().split()[0])

    def kill_worker(self, client):
        os.kill(self.worker(client), signal.SIGKILL)

    def kill_machine(self, client):
        """Everything of a client at once, as when its machine loses power."""
        self.kill_worker(client)
        self.deployment.stop(f"node {client}", signal.SIGKILL)

    def client_app(self, client):
        """The pid of the ClientApp that its SuperNode runs now, if any."""
        group = self.deployment.processes[f"node {client}"].pid
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"flwr-clientapp" in (folder / "cmdline").read_bytes() and os.getpgid(int(folder.name)) == group:
                    return int(folder.name)
        return None

    def digests(self):
        """SHA-256 of the weights that each client has on its disk."""
        kept = [
            unpack_tree((self.folder / f"client-{c}" / "replica.safetensors").read_bytes()) for c in range(self.clients)
        ]
        return [hashlib.sha256(unpack_tree(one["replica"])["w"].numpy().tobytes()).hexdigest() for one in kept]

    def in_process(self, participants):
        """The same training without Flower and without faults, by these clients: its digest and its accuracy."""
        setup = prepare(self.config)
        federation = setup.federation()
        federation.attendance = Recorded(rows=tuple(participants))
        run(federation, rounds=self.config.rounds)
        return federation.digest(), setup.evaluate(federation.model_vector)["accuracy"]

    def finish(self):
        """Wait for the end and check it; returns who took part in every round.

        Every round happened once and no client twice in it; the server's weights are those of exactly the updates it
        recorded, to the bit; all replicas are the server's; the accuracy is that of a quiet run, within noise; the
        server's folder holds model, summary and report.
        """
        self.until_round(self.config.rounds)
        last = self.rows()[-1]
        server = self.folder / "server"
        self.until((server / "report.html").exists, "the report of the run")
        summary = json.loads((server / "summary.json").read_text())
        assert summary["rounds"] == self.config.rounds
        assert (server / "model.safetensors").exists()
        self.until(lambda: set(self.digests()) == {last["digest"]}, "the last broadcast on every client")
        rows = self.rows()
        assert [row["round"] for row in rows] == list(range(1, self.config.rounds + 1))
        participants = [tuple(row["clients"]) for row in rows]
        assert all(len(set(row)) == len(row) for row in participants)
        assert self.in_process(participants)[0] == last["digest"]
        quiet = self.in_process([tuple(range(self.clients))] * self.config.rounds)[1]
        assert last["accuracy"] > quiet - 0.1
        return participants


@pytest.fixture
def bed(tmp_path):
    made = []

    def make(*, clients=2, rounds=4, round_timeout=300.0):
        made.append(Bed(tmp_path, clients, rounds, round_timeout))
        return made[-1]

    yield make
    for one in made:
        one.deployment.__exit__()
