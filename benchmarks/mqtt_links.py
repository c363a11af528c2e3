"""MQTT over thin wires: seconds, bytes at the interface and digests of the thin-wire federation, TLS and all.

``python benchmarks/mqtt_links.py --data idx:FOLDER`` (root; see netbed.py) fills ``benchmarks/results/mqtt.json`` cell
by cell, and skips those already there.  Broker and server live in one namespace, three clients in their own; all four
links run at the rate in both directions, with bursts of 2 kB, mutual TLS on.  Bytes are the counters of the broker's
interface from before the first client connects to the end of the last round counted; seconds are the rounds'.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from desketch.core.files import write_durably
from desketch.fed import run
from desketch.integrations.mqtt.broker import mosquitto
from desketch.integrations.mqtt.deploy import MqttPlan, start_client, start_server
from desketch.integrations.processes import Processes
from desketch.tasks import prepare
from desketch.tasks.config import RunConfig
from desketch.tasks.parties import ConfiguredTrainer
from netbed import Host, bed, missing
from thin_wire import CLIENTS, SETTINGS, TARGET

RESULTS = Path(__file__).resolve().parent / "results" / "mqtt.json"
PORT = 8883
Rows = list[dict[str, Any]]
Counters = list[tuple[int, int]]  # bytes sent and received
SIGN = {"codec": "sign1", "codec_down": "sign1"}
# what reached the target in the fewest rounds on validation data, for every b: mqtt_settings.py
SHORT_RUN = {"client_momentum": 0.0, "average": 1}
# name -> rate, settings, whether it stops at the target; at 10 kbit/s the b with which one way of a round fits a burst
CELLS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "100 kbit/s": ("100kbit", SHORT_RUN | {"compression": 120.0}, True),
    "100 kbit/s, 30x": ("100kbit", SHORT_RUN, True),
    "100 kbit/s, defaults": ("100kbit", {}, True),
    "10 kbit/s": ("10kbit", SHORT_RUN | {"compression": 120.0}, True),
    "b = 848": ("100kbit", {"b": 848, "rounds": 12}, False),
}


LINK = {"burst": "2kb", "latency": "8s"}
REPEATED = ("seconds", "seconds_client", "seconds_beyond_local", "interface_bytes", "interface_over_messages", "load")


def cell(name: str, data: str, limit: float) -> dict[str, Any]:
    """Run one cell until the target, its last round, or the limit."""
    rate, settings, stops = CELLS[name]
    with (
        tempfile.TemporaryDirectory(prefix="mqtt-") as temporary,
        bed(1 + CLIENTS, rate, **LINK) as hosts,
    ):
        config = RunConfig(task=data, **{**SETTINGS, **SIGN, **settings})
        plan = MqttPlan(folder=Path(temporary), config=config, host=hosts[0].address, port=PORT, secure=True)
        plan.write()
        wrap = {f"client {client}": hosts[client + 1].command([]) for client in range(CLIENTS)}
        wrap |= {"broker": hosts[0].command([]), "server": hosts[0].command([])}
        with Processes(plan.folder, wrap=wrap) as processes:
            rows, counters = _follow(processes, plan, hosts[0], limit, stops=stops)
        return {"rate": rate, **_outcome(config, rows, counters)}


def _follow(processes: Processes, plan: MqttPlan, host: Host, limit: float, *, stops: bool) -> tuple[Rows, Counters]:
    """The rows until the end, and the interface's counters: before, when all are connected, and after every round."""
    processes.start("broker", [mosquitto(), "-c", str(plan.folder / "broker" / "mosquitto.conf")])
    probe = host.command(["bash", "-c", f"exec 3<>/dev/tcp/{host.address}/{PORT}"])
    while subprocess.run(probe, capture_output=True).returncode:
        time.sleep(0.1)
    counters = [host.counters()]
    for client in range(CLIENTS):
        start_client(processes, plan, client)
    while processes.log("broker").read_text().count("New client connected") < CLIENTS:
        if not all(processes.running(f"client {client}") for client in range(CLIENTS)):
            raise SystemExit(processes.tail("client 0"))
        time.sleep(0.2)
    time.sleep(3.0)  # their subscriptions too
    counters.append(host.counters())
    start_server(processes, plan)
    rows: Rows = []
    deadline = time.monotonic() + limit
    for row in processes.follow("server", plan.out / "metrics.jsonl", minutes=limit / 60):
        rows.append(row)
        counters.append(host.counters())
        if (stops and row["accuracy"] >= TARGET) or time.monotonic() > deadline:
            break
    if not rows:
        raise SystemExit(processes.tail("server"))
    return rows, counters


def _outcome(config: RunConfig, rows: Rows, counters: Counters) -> dict[str, Any]:
    moved = [sum(both) - sum(counters[0]) for both in counters[1:]]  # connected, then after each round
    frames = sum(row["bytes_up"] + row["bytes_down"] for row in rows)
    later = sum(row["bytes_up"] + row["bytes_down"] for row in rows[1:-1])  # neither hello nor goodbye
    setup = prepare(config)
    b = setup.agreement().wire.b
    payload = (len(rows) - 2) * 2 * CLIENTS * b // 8  # of one bit a number
    federation = setup.federation()
    federation.clients = [ConfiguredTrainer(prepare(config), client).participant for client in range(CLIENTS)]
    run(federation, rounds=len(rows))  # by the engine that clients use: another one adds in another order
    return {
        "reached": rows[-1]["accuracy"] >= TARGET,
        "rounds": len(rows),
        "accuracy": rows[-1]["accuracy"],
        "b": b,
        "d": rows[-1]["d"],
        "seconds": round(sum(row["seconds"] for row in rows), 2),
        "seconds_client": round(sum(row["seconds_client"] for row in rows), 2),
        "seconds_server": round(sum(row["seconds_server"] for row in rows), 2),
        "seconds_beyond_local": round(sum(row["seconds"] - row["seconds_client"] for row in rows), 2),
        "interface_bytes": moved[-1],
        "interface_bytes_connecting": moved[0],
        "message_bytes": frames,
        "interface_over_messages": round((moved[-2] - moved[1]) / later, 3) if later else None,
        "interface_over_payload": round((moved[-2] - moved[1]) / payload, 3) if later else None,
        "load": [round(number, 1) for number in os.getloadavg()],
        "digest": rows[-1]["digest"],
        "digest_in_process": federation.digest(),
        "participants": [row["participants"] for row in rows],
        "accuracies": [row["accuracy"] for row in rows],
        "interface_bytes_after_rounds": moved[1:],
        "seconds_beyond_local_of_rounds": [round(row["seconds"] - row["seconds_client"], 3) for row in rows],
        "seconds_of_rounds": [round(row["seconds"], 3) for row in rows],
    }


def median_of(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """The repeat in the middle by seconds beyond local work, and what differs between the repeats."""
    order = sorted(outcomes, key=lambda outcome: float(outcome["seconds_beyond_local"]))
    repeats = [{name: outcome[name] for name in REPEATED} for outcome in outcomes]
    return order[(len(order) - 1) // 2] | {"repeats": repeats}


def results() -> dict[str, Any]:
    """The document so far."""
    if RESULTS.exists():
        return json.loads(RESULTS.read_text())
    return {"command": "python benchmarks/mqtt_links.py --data idx:FOLDER", "settings": SETTINGS | SIGN, "cells": {}}


def write(document: dict[str, Any]) -> None:
    """Keep the document."""
    write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())


def main() -> None:
    """Fill the missing cells."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Fashion-MNIST as idx:FOLDER")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds after which a cell is stopped")
    args = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return
    for name in args.cells:
        if name in results()["cells"]:
            continue
        outcome = median_of([cell(name, args.data, args.limit) for _ in range(args.repeats)])
        document = results()
        document["cells"][name] = outcome
        write(document | {"settings": SETTINGS | SIGN})
        print(name, json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
