"""Enrol the nodes of a secure deployment: ``python -m desketch.integrations.flower.enrol FOLDER`` beside the SuperLink.

Registering a node's public key makes a node id of it, under which Flower delivers what the holder of that key signs.
``nodes.json`` keeps which client each node id is: the server of a run takes a reply for client c from that node only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from desketch.core.files import write_durably
from desketch.errors import RunError

__all__ = ["ENROLLED", "enrol", "read_enrolled"]

ENROLLED = "nodes.json"
Register = Callable[[Path], int]


def enrol(folder: Path, clients: int, register: Register) -> dict[int, int]:
    """Register every node that is not registered yet; node id -> client, as ``nodes.json`` then says."""
    path = folder / ENROLLED
    enrolled = read_enrolled(path) if path.exists() else {}
    for client in sorted(set(range(clients)) - set(enrolled.values())):
        enrolled[register(folder / "keys" / f"node-{client}.pub")] = client
        write_durably(path, json.dumps({str(node): who for node, who in enrolled.items()}, indent=1) + "\n")
        path.chmod(0o600)
    return enrolled


def read_enrolled(path: Path) -> dict[int, int]:
    """Node id -> client; each client once."""
    try:
        table = {int(node): client for node, client in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{path} does not list the enrolled nodes ({error}); run 2-register-nodes.sh first") from None
    if not all(type(client) is int and client >= 0 for client in table.values()):
        raise RunError(f"{path} must map node ids to client ids, numbers from 0; run 2-register-nodes.sh again")
    if len(set(table.values())) != len(table):
        raise RunError(f"{path} gives one client to two nodes; delete it with superlink.db and enrol again")
    return table


def with_flwr(environment: dict[str, str], flwr: str) -> Register:
    """Register through Flower's own command, on loopback."""

    def register(public: Path) -> int:
        command = [flwr, "supernode", "register", str(public), "desketch", "--name", public.stem, "--format", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        try:
            return int(json.loads(done.stdout[done.stdout.index("{") :])["node-id"])
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{public.name} could not be registered: {done.stdout[-500:]}{done.stderr[-500:]}") from None

    return register


def main() -> int:
    """Enrol the nodes of the deployment in the folder given on the command line."""
    from desketch.integrations.flower.processes import flower_environment, tool

    folder = Path(sys.argv[1]).resolve()
    clients = len(list((folder / "keys").glob("node-*.pub")))
    try:
        enrolled = enrol(folder, clients, with_flwr(flower_environment(folder / "flwr"), tool("flwr")))
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for node, client in enrolled.items():
        print(f"client {client} is node {node}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
