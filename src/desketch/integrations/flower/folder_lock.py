"""One server a folder: a resumed run waits until the run before it has really ended.

When a SuperLink dies, its ServerApp ends a moment later; a new run that was started meanwhile must not write into the
same state.  The lock is the kernel's, so it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desketch.errors import RunError

__all__ = ["sole_server"]

PATIENCE_SECONDS = 60.0


@contextmanager
def sole_server(folder: Path | None, *, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the folder for the block, waiting for another holder at most ``seconds``; no folder needs no lock."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with (folder / "server.lock").open("w") as file:
        while not _locked(file.fileno()):
            if time.monotonic() > deadline:
                raise RunError(f"another server is at work in {folder}; stop it, or choose another folder")
            time.sleep(0.1)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
