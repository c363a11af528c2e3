"""A real deployment on loopback: a SuperLink, SuperNodes and a run, all of whose processes can be killed."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from desketch.fed.state import unpack
from desketch.integrations.flower.deploy import Plan, _wait_for
from desketch.integrations.flower.processes import Deployment, free_port
from desketch.tasks.config import RunConfig

SETTINGS = {
    "task": "digits",
    "model": "mlp:32",
    "partition": "iid",
    "compression": 10,
    "codec": "int4",
    "local_steps": 20,
    "eta_local": 0.2,
}


class Bench:
    """A deployment under test, and what it left on disk."""

    def __init__(self, folder, clients, rounds, round_timeout):
        self.folder, self.clients = folder, clients
        self.config = RunConfig(**SETTINGS, clients=clients, rounds=rounds, out=str(folder / "server"))
        self.plan = Plan(folder=folder, config=self.config, port=free_port())
        self.plan.write(round_timeout=round_timeout, min_nodes=1)
        self.deployment = Deployment(folder, "127.0.0.1", self.plan.port)

    def start(self):
        self.start_server()
        for client in range(self.clients):
            self.deployment.start_node(client, self.clients)
        self.deployment.start_run(self.plan.project)

    def start_server(self):
        self.deployment.start_superlink()
        _wait_for(self.deployment)

    def rows(self):
        path = self.folder / "server" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def until(self, rounds, seconds=400):
        deadline = time.monotonic() + seconds
        while len(self.rows()) < rounds:
            assert time.monotonic() < deadline, self.deployment.log("run").read_text()[-3000:]
            time.sleep(0.1)

    def until_end(self, seconds=400):
        """Wait for the last round and the farewell that follows it."""
        self.until(self.config.rounds, seconds)
        deadline = time.monotonic() + 90
        while set(self.replica_digests().values()) != {self.rows()[-1]["digest"]} and time.monotonic() < deadline:
            time.sleep(0.2)

    def worker(self, client):
        return int((self.folder / f"client-{client}" / "worker.pid").read_text())

    def kill_worker(self, client):
        os.kill(self.worker(client), signal.SIGKILL)

    def replica_digests(self):
        import hashlib

        digests = {}
        for client in range(self.clients):
            kept = unpack((self.folder / f"client-{client}" / "replica.safetensors").read_bytes())
            w = unpack(kept["replica"])["w"]
            digests[client] = hashlib.sha256(w.numpy().tobytes()).hexdigest()
        return digests

    def undisturbed_accuracy(self):
        from desketch.fed import run
        from desketch.tasks import prepare

        setup = prepare(self.config)
        federation = setup.federation()
        run(federation, rounds=self.config.rounds)
        return setup.evaluate(federation.model_vector)["accuracy"]

    def check_end(self):
        """Every round once, no client twice, all replicas the server's, accuracy within noise of the quiet run."""
        rows = self.rows()
        assert [row["round"] for row in rows] == list(range(1, self.config.rounds + 1))
        assert all(len(set(row["participants"])) == len(row["participants"]) for row in rows)
        assert set(self.replica_digests().values()) == {rows[-1]["digest"]}
        assert rows[-1]["accuracy"] > self.undisturbed_accuracy() - 0.12


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(clients=2, rounds=5, round_timeout=180.0):
        made.append(Bench(tmp_path, clients, rounds, round_timeout))
        made[-1].deployment.__enter__()
        return made[-1]

    yield make
    for one in made:
        one.deployment.__exit__(None, None, None)
