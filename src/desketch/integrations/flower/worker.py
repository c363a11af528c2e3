"""The resident worker of one client: ``python -m desketch.integrations.flower.worker FOLDER`` (see `resident`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from desketch.errors import DesketchError
from desketch.integrations.flower.resident import receive, send, started

__all__ = ["main"]

_WATCH_SECONDS = 1.0


class Worker:
    """Answers one request at a time; builds the client's session when the configuration is first seen or changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.guardian = os.getppid()
        self._built: tuple[str, Any] | None = None

    def answer(self, head: dict[str, Any], request: bytes) -> bytes:
        """The session's answer to an order."""
        wanted = json.dumps([head["factory"], head["client"], head["config"]], sort_keys=True)
        if self._built is None or self._built[0] != wanted:
            module, _, function = head["factory"].partition(":")
            build = getattr(import_module(module), function)
            self._built = wanted, build(head["config"], head["client"], self.folder)
        answer: bytes = self._built[1].answer(request)
        return answer

    def serve(self, listener: socket.socket) -> None:
        """Serve until the guardian is gone."""
        while True:
            link, _ = listener.accept()
            with link:
                head = json.loads(receive(link))
                self.guardian = head["guardian"]
                status, answer = self._safely(head, receive(link))
                send(link, status)
                send(link, answer)

    def _safely(self, head: dict[str, Any], request: bytes) -> tuple[bytes, bytes]:
        try:
            return b"ok", self.answer(head, request)
        except DesketchError as error:
            return b"error", f"{type(error).__name__}: {error}".encode()
        except Exception as error:  # the ClientApp reports it; the worker's log has the traceback
            traceback.print_exc()
            return b"error", repr(error).encode()

    def watch(self) -> None:
        """End this process soon after the guardian ends."""
        while True:
            time.sleep(_WATCH_SECONDS)
            try:
                os.kill(self.guardian, 0)
            except ProcessLookupError:
                os._exit(0)
            except PermissionError:
                continue


def main() -> None:
    """Listen in the folder given on the command line."""
    folder = Path(sys.argv[1])
    os.chdir(folder)  # socket names are short, folders need not be
    Path("worker.sock").unlink(missing_ok=True)
    os.umask(0o077)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("worker.sock")
    Path("worker.pid").write_text(f"{os.getpid()} {started(os.getpid())}")
    worker = Worker(folder)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=worker.watch, daemon=True).start()
    listener.listen()
    worker.serve(listener)


if __name__ == "__main__":
    main()
