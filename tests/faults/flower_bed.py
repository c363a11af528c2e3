"""A real Flower deployment on loopback: a SuperLink, SuperNodes and a run, all of whose processes can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from deployed import Deployed

from desketch.integrations.flower.deploy import DeploymentPlan, wait_for_superlink
from desketch.integrations.flower.processes import Deployment, free_port


class Bed(Deployed):
    """A Flower deployment under test."""

    def __init__(self, folder, clients, rounds, round_timeout):
        super().__init__(folder, clients, rounds)
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
