"""Talk to a client's resident worker, and start it when it is not there; imports neither torch nor flwr.

Flower starts a process for every message.  That process only carries bytes to a worker which stays: it has torch, the
data and the replica in memory.  The worker listens on a socket in the client's own folder (readable by its user only)
and ends when the process that needed it last (the SuperNode's executor) is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from desketch.errors import RunError

__all__ = ["MODULE", "ask", "receive", "send", "started"]

MODULE = "desketch.integrations.flower.worker"
FACTORY = "desketch.integrations.flower.party:client_session"
START_SECONDS = 120.0
_LENGTH = struct.Struct("<Q")


def ask(
    folder: Path, request: bytes, *, client: int, config: dict[str, Any], guardian: int, factory: str = FACTORY
) -> bytes:
    """Hand the request to the worker of this folder and return its answer.

    ``factory`` is "module:function"; called once with (config, client, folder), it makes what answers requests.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    head = json.dumps({"client": client, "config": config, "guardian": guardian, "factory": factory}).encode()
    try:
        status, answer = _talk(folder, head, request)
    except OSError:  # it died with the request: nothing was answered, so another may work on it
        status, answer = _talk(folder, head, request)
    if status != b"ok":
        raise RunError(f"the worker of client {client} failed: {answer.decode(errors='replace')}")
    return answer


def started(pid: int) -> int:
    """When a process started, in clock ticks since the machine did: with its pid, which process it is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19])  # the 22nd of the line, counted from its end of the command's name


def _talk(folder: Path, head: bytes, request: bytes) -> tuple[bytes, bytes]:
    with _connect(folder) as link:
        send(link, head)
        send(link, request)
        return receive(link), receive(link)


def send(link: socket.socket, data: bytes) -> None:
    """Write one length-prefixed message."""
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive(link: socket.socket) -> bytes:
    """Read one length-prefixed message."""
    (length,) = _LENGTH.unpack(_read(link, _LENGTH.size))
    return _read(link, length)


def _read(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise ConnectionError("the worker ended before it answered; its log is in the client's folder")
        parts += part
    return bytes(parts)


def _connect(folder: Path) -> socket.socket:
    """Connect, starting the worker first if nobody listens; a lock keeps two starters apart."""
    with (folder / "worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if link := _try(folder):
            return link
        process = _start(folder)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if link := _try(folder):
                return link
            time.sleep(0.05)
    raise RunError(f"the worker did not start within {START_SECONDS:g} s; see {folder / 'worker.log'}")


def _try(folder: Path) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX)
    here = os.open(folder, os.O_RDONLY)
    try:
        # through /proc/self/fd the address stays short, however deep the folder is
        link.connect(f"/proc/self/fd/{here}/worker.sock")
        return link
    except OSError:
        link.close()
        return None
    finally:
        os.close(here)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "worker.log").open("ab") as log:
        command = [sys.executable, "-m", MODULE, str(folder)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
