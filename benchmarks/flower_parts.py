"""Where a Flower round's seconds and bytes go: desketch, FedAvg behind the same worker, and plain FedAvg, in one run.

``python benchmarks/flower_parts.py --data idx:FOLDER`` (root; see netbed.py) writes ``benchmarks/results/
flower_parts.json``.  A SuperLink and three SuperNodes live in namespaces without shaping, so that the SuperLink's
interface counts every byte.  The parts are those of the client that answered last, since the round waits for it; what
they and the server leave of the round is Flower's: queues, polls and transport.  Medians over all rounds but the first.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from desketch.core.files import write_durably
from desketch.integrations.flower.processes import Deployment
from desketch.integrations.flower.project import write_project
from desketch.tasks.config import RunConfig
from netbed import Host, bed, missing
from thin_wire import CLIENTS, SETTINGS, deployed

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results" / "flower_parts.json"
METHODS = {  # name -> (ClientApp, ServerApp, settings)
    "desketch": ("flower_timed:sketch_app", "desketch.integrations.flower.app:server_app", {"codec": "sign1"}),
    "FedAvg, resident worker": ("fedavg_flower:client_app", "fedavg_flower:server_app", {"kind": "fedavg"}),
    "FedAvg, plain": ("flower_timed:plain_app", "fedavg_flower:server_app", {"kind": "fedavg"}),
}
ARRAYS = 4 * CLIENTS * 407_050  # bytes of all clients' f32 parameters, MLP 784-512-10: what FedAvg's messages carry
_APP = "from {module} import {name} as app\n\n__all__ = ['app']\n"


def write_app(folder: Path, method: str, config: RunConfig) -> None:
    """The project of a method."""
    client, server, settings = METHODS[method]
    write_project(folder, config, {"min_nodes": CLIENTS, "round_timeout": 600.0, **settings})
    for file, place in {"client_app": client, "server_app": server}.items():
        module, _, name = place.partition(":")
        (folder / "desketch_app" / f"{file}.py").write_text(_APP.format(module=module, name=name))


def measure(method: str, data: str, rounds: int) -> dict[str, Any]:
    """Run a method and return the medians of its parts."""
    with tempfile.TemporaryDirectory(prefix="flower-parts-") as temporary, bed(1 + CLIENTS, None) as hosts:
        folder = Path(temporary)
        config = RunConfig(task=data, out=str(folder / "server"), **{**SETTINGS, "rounds": rounds})
        write_app(folder / "project", method, config)
        with deployed(folder, hosts) as deployment:
            rows = follow(deployment, hosts[0], folder / "server" / "metrics.jsonl", rounds)
        if len(rows) < rounds:
            raise SystemExit(f"{method}: {len(rows)} of {rounds} rounds:\n{deployment.log('run').read_text()[-3000:]}")
        clients = [client_parts(folder / f"client-{client}") for client in range(CLIENTS)]
    parts = [round_parts(row, clients) for row in rows[1:]]
    counters = [[row["interface_up"], row["interface_down"]] for row in rows]
    up, down = (median(b - a for a, b in pairwise(way)) for way in zip(*counters, strict=True))
    return {
        **{name: round(median(part[name] for part in parts), 4) for name in parts[0]},
        "first_round": round(rows[0]["seconds"], 2),
        "bytes_up": median(row.get("bytes_up", ARRAYS) for row in rows[1:]),
        "bytes_down": median(row.get("bytes_down", ARRAYS) for row in rows[1:]),
        "interface_up": up,
        "interface_down": down,
        "rounds": rounds,
    }


def follow(deployment: Deployment, host: Host, path: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows of the rounds, each with the interface's counters at its end."""
    rows: list[dict[str, Any]] = []
    while deployment.running("run") and len(rows) < rounds:
        for line in (path.read_text().split("\n")[:-1] if path.exists() else [])[len(rows) :]:
            sent, received = host.counters()
            rows.append({**json.loads(line), "interface_down": sent, "interface_up": received})
        time.sleep(0.1)
    return rows


def client_parts(folder: Path) -> dict[int, dict[str, float]]:
    """Round -> seconds by part, summed over the round's messages (a first contact takes two)."""
    parts: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name in ("parts.jsonl", "worker.jsonl"):
        for line in (folder / name).read_text().splitlines():
            values = json.loads(line)
            place = parts[int(values.pop("t"))]
            place["left"] = max(place["left"], values.pop("left", 0.0))
            for key, value in values.items():
                place[key] += value
    return parts


def round_parts(row: dict[str, Any], clients: list[dict[int, dict[str, float]]]) -> dict[str, float]:
    """The parts of a round, which add up to its seconds."""
    last = max((parts[row["round"]] for parts in clients), key=lambda part: part["left"])
    encode = last["work"] - last["steps"] - last["loading"]
    ours = {"startup": last["startup"], "loading": last["loading"], "steps": last["steps"], "encode": encode}
    server = row["seconds_server"]
    return {**ours, "server": server, "flower": row["seconds"] - server - sum(ours.values()), "round": row["seconds"]}


def main() -> None:
    """Measure all methods, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Fashion-MNIST as idx:FOLDER")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    methods = {method: measure(method, args.data, args.rounds) for method in METHODS}
    document = {
        "command": "python benchmarks/flower_parts.py --data idx:FOLDER",
        "clients": CLIENTS,
        "settings": SETTINGS,
        "load_average": round(os.getloadavg()[1], 1),
        "methods": methods,
    }
    write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
