"""Time and bytes to an accuracy over real thin wires: Flower FedAvg, f16 FedAvg and desketch, one cell at a time.

``python benchmarks/thin_wire.py --data idx:FOLDER`` (root; see netbed.py) fills ``benchmarks/results/thin_wire.json``
cell by cell and skips those already there.  A SuperLink and three SuperNodes live in namespaces of their own; all four
links, the SuperLink's too, run at the rate in both directions.  Time counts from the first round's start to the end of
the round that reached the target, or to the moment a cell was stopped without it; bytes are the SuperLink interface's
own counters, headers, polls and all.

Flower's HTTP client waits 30 s for an answer and then sends the request again, and an array travels as requests of up
to 5 MB.  At 100 kbit/s, shared by three clients, 1.6 MB takes 390 s, and a repeated upload is refused: no reply of
FedAvg arrives and no round makes progress.  So there, and only there, arrays travel in pieces of 16 kB, one at a time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from desketch.core.files import write_durably
from desketch.integrations.flower.processes import Deployment
from desketch.integrations.flower.project import write_flower_home, write_project
from desketch.tasks.config import RunConfig
from netbed import Host, bed, missing

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results" / "thin_wire.json"
RATES = {"10 Mbit/s": "10mbit", "1 Mbit/s": "1mbit", "100 kbit/s": "100kbit"}
CLIENTS, TARGET, PORT = 3, 0.84, 8000
SETTINGS: dict[str, Any] = {
    "model": "mlp:512",
    "clients": CLIENTS,
    "partition": "iid",
    "validation": 0.0,
    "local_steps": 100,
    "rounds": 60,
    "compression": 30.0,
    "server_optimizer": "momentum",
}
METHODS = {
    "empty": {"rounds": 6},
    "desketch sign1": {"codec": "sign1", "codec_down": "sign1"},
    "desketch int4": {"codec": "int4", "codec_down": "int4"},
    "fedavg-f16": {},
    "fedavg": {},
}
PIECES = {  # Flower's own switches for the thinnest link: how large a piece of an array is, how many travel at once
    "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE": "16384",
    "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES": "1",
    "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PULLS": "1",
}
_APP = "from fedavg_flower import {name} as app\n\n__all__ = ['app']\n"


def write_app(folder: Path, method: str, config: RunConfig) -> None:
    """The project of a method: desketch's own, or the FedAvg app beside this file."""
    extra: dict[str, Any] = {"min_nodes": CLIENTS, "round_timeout": 7200.0}
    if method.startswith("desketch"):
        write_project(folder, config, extra)
        return
    write_project(folder, config, {**extra, "kind": method})
    for file in ("client_app", "server_app"):
        (folder / "desketch_app" / f"{file}.py").write_text(_APP.format(name=file))


def cell(
    method: str,
    rate: str,
    data: str,
    limit: float,
    *,
    settings: Mapping[str, Any] | None = None,
    link: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run one method at one rate until the target, its last round, or the time limit."""
    with (
        tempfile.TemporaryDirectory(prefix="thin-wire-") as temporary,
        bed(1 + CLIENTS, RATES[rate], **(link or {})) as hosts,
    ):
        folder = Path(temporary)
        config = RunConfig(task=data, out=str(folder / "server"), **{**SETTINGS, **METHODS[method], **(settings or {})})
        write_app(folder / "project", method, config)
        with deployed(folder, hosts) as deployment:
            outcome = follow(deployment, hosts[0], folder / "server" / "metrics.jsonl", config, method, limit)
            return outcome | {"load": [round(number, 1) for number in os.getloadavg()]}


@contextmanager
def deployed(folder: Path, hosts: list[Host]) -> Iterator[Deployment]:
    """A SuperLink on the first host, a SuperNode on each other one, and ``folder / "project"`` running on them."""
    clients = len(hosts) - 1
    wrap = {f"node {client}": hosts[client + 1].command([]) for client in range(clients)}
    wrap |= {"superlink": hosts[0].command([]), "run": hosts[0].command([])}
    with Deployment(folder, hosts[0].address, PORT, database=False, wrap=wrap) as deployment:
        write_flower_home(deployment.home, f"{hosts[0].address}:{PORT}")
        deployment.start_superlink()
        wait_for_port(hosts[0])
        for client in range(clients):
            deployment.start_node(client, clients)
        deployment.start_run(folder / "project")
        yield deployment


def switch_pieces(*, on: bool) -> None:
    """Whether the Flower processes that are started next send arrays in small pieces."""
    for name, value in PIECES.items():
        os.environ.pop(name, None)
        if on:
            os.environ[name] = value


def wait_for_port(host: Host) -> None:
    """Wait until the SuperLink listens."""
    probe = host.command(["bash", "-c", f"exec 3<>/dev/tcp/{host.address}/{PORT}"])
    for _ in range(600):
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return
        time.sleep(0.2)
    raise SystemExit("the SuperLink did not start")


def follow(
    deployment: Deployment, host: Host, path: Path, config: RunConfig, method: str, limit: float
) -> dict[str, Any]:
    """Watch the rounds; the interface's counters are read when the first round begins and at every row."""
    started, seen = time.monotonic(), 0
    rows: list[dict[str, Any]] = []
    last_row = started
    before: tuple[int, int] | None = None
    reached = False
    while deployment.running("run") and time.monotonic() - started < limit and not reached:
        if before is None and path.parent.exists():
            before, started = host.counters(), time.monotonic()  # the first round begins: start-up is nobody's time
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for row in map(json.loads, lines[seen:]):
            sent, received = host.counters()
            row["interface_down"], row["interface_up"] = sent, received
            rows.append(row)
            last_row = time.monotonic()
            reached = method != "empty" and row["accuracy"] >= TARGET
            if reached:
                break
        seen = len(rows)
        time.sleep(0.1)
    if not rows and time.monotonic() - started < limit:
        raise SystemExit(f"{method}: no round; log:\n{deployment.log('run').read_text()[-3000:]}")
    down, up = before or (0, 0)
    last = rows[-1] if rows else {"interface_down": host.counters()[0], "interface_up": host.counters()[1]}
    unfinished = 0.0 if reached or not rows else time.monotonic() - last_row  # the round that was cut off
    return {
        "reached": reached,
        "target": TARGET,
        "rounds": len(rows),
        "accuracy": last.get("accuracy", 0.0),
        "seconds": round(sum(row["seconds"] for row in rows) + unfinished, 2),
        "accuracies": [row.get("accuracy", 0.0) for row in rows],
        "elapsed": round(time.monotonic() - started, 2),
        "interface_down": last["interface_down"] - down,
        "interface_up": last["interface_up"] - up,
        "wire_down": sum(row.get("bytes_down", 0) for row in rows),
        "wire_up": sum(row.get("bytes_up", 0) for row in rows),
        "messages": CLIENTS * len(rows),
        "seconds_client": round(sum(row.get("seconds_client", 0.0) for row in rows), 2),
        "seconds_of_rounds": [round(row["seconds"], 2) for row in rows],
        "interface_bytes_after_rounds": [row["interface_down"] + row["interface_up"] - down - up for row in rows],
    }


@contextmanager
def results() -> Iterator[dict[str, Any]]:
    """The document, locked; it is written back at the end."""
    RESULTS.parent.mkdir(exist_ok=True)
    with Path(tempfile.gettempdir(), "thin-wire.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        empty = {
            "command": "python benchmarks/thin_wire.py --data idx:FOLDER",
            "clients": CLIENTS,
            "settings": SETTINGS,
        }
        document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {**empty, "cells": {}}
        yield document
        write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())


def arguments(about: str, methods: Iterable[str], *, limit: float, rates: bool = False) -> argparse.Namespace | None:
    """What to fill; None where there can be no bed. Processes that are started afterwards find the FedAvg app."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--data", required=True, help="Fashion-MNIST as idx:FOLDER")
    if rates:
        parser.add_argument("--rates", nargs="*", default=list(RATES), choices=list(RATES))
    parser.add_argument("--methods", nargs="*", default=list(methods), choices=list(methods))
    parser.add_argument("--limit", type=float, default=limit, help="seconds after which a cell is stopped")
    args = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return None
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return args


def main() -> None:
    """Fill the missing cells."""
    args = arguments(__doc__, METHODS, limit=7200.0, rates=True)
    for rate, method in product(args.rates, args.methods) if args else ():
        name = f"{rate}, {method}"
        with results() as document:
            if name in document["cells"]:
                continue
        switch_pieces(on=rate == "100 kbit/s")
        outcome = cell(method, rate, args.data, args.limit)
        with results() as document:
            document["cells"][name] = outcome
        print(name, json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
