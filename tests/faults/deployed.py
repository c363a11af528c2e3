"""A deployment under test, whatever engine carries it: what it left on disk, and what must be true at its end."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from itertools import chain, combinations

import pytest

from desketch.core.tree import unpack_tree
from desketch.fed import Attendance, run
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
    """The clients whose updates the server says it used, and ``unheard`` ones: (client, round) that it did not get."""

    rows: tuple[tuple[int, ...], ...]
    unheard: tuple[tuple[int, int], ...] = ()

    def cohort(self, t, clients):
        return sorted({*self.rows[t - 1], *(client for client, when in self.unheard if when == t)})

    def fates(self, t, cohort):
        return {client: "ok" if client in self.rows[t - 1] else "late" for client in cohort}


class Deployed:
    """The folder of a deployment: ``server`` and ``client-0`` ... in it, logs beside them."""

    def __init__(self, folder, clients, rounds, **settings):
        self.folder, self.clients = folder, clients
        self.config = RunConfig(**SETTINGS | settings, clients=clients, rounds=rounds, out=str(folder / "server"))

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

    def digests(self):
        """SHA-256 of the weights that each client has on its disk."""
        kept = [
            unpack_tree((self.folder / f"client-{c}" / "replica.safetensors").read_bytes()) for c in range(self.clients)
        ]
        return [hashlib.sha256(unpack_tree(one["replica"])["w"].numpy().tobytes()).hexdigest() for one in kept]

    def in_process(self, participants, unheard=()):
        """The same training in this process and without faults, by these clients: its digest and its accuracy."""
        setup = prepare(self.config)
        federation = setup.federation()
        federation.attendance = Recorded(rows=tuple(participants), unheard=unheard)
        run(federation, rounds=self.config.rounds)
        return federation.digest(), setup.evaluate(federation.model_vector)["accuracy"]

    def finish(self):
        """Wait for the end and check it; returns who took part in every round.

        Every round happened once and no client twice in it; the server's weights are those of exactly the updates it
        recorded, to the bit; all replicas are the server's; the accuracy is that of a quiet run, within noise; the
        server's folder holds model, summary and report.

        A client that was lost in a round may have trained in it and kept that update in its running mean, though the
        server never heard of it: each such round has two histories, and the server's must be one of them.
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
        assert last["digest"] in {self.in_process(participants, lost)[0] for lost in _some(_lost(participants))}
        quiet = self.in_process([tuple(range(self.clients))] * self.config.rounds)[1]
        assert last["accuracy"] > quiet - 0.1
        return participants


def _lost(participants):
    """(client, round) of the first round of every absence."""
    rows = list(enumerate(zip([(), *participants], participants, strict=False), start=1))
    return [(client, t) for t, (before, now) in rows for client in before if client not in now]


def _some(lost):
    """Every selection of them."""
    return chain.from_iterable(combinations(lost, n) for n in range(len(lost) + 1))
