"""Durable files: written whole or not at all, still there after a power cut, and one writer a folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desketch.errors import RunError

__all__ = ["sole_writer", "write_durably"]

PATIENCE_SECONDS = 60.0


def write_durably(path: Path, data: bytes | str) -> None:
    """Replace ``path`` by ``data`` in one step: a reader, or a machine that lost power, sees the old or the new file.

    The bytes reach the disk before the new name does, and the folder is flushed too: a rename that only the cache knows
    would be lost.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def sole_writer(folder: Path | None, *, seconds: float = PATIENCE_SECONDS, name: str = "server.lock") -> Iterator[None]:
    """Hold the folder for the block, waiting for another holder at most ``seconds``; no folder needs no lock.

    The lock is the kernel's, so it ends with the process that holds it, however that ends.
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    with (folder / name).open("w") as file:
        while not _locked(file.fileno()):
            if time.monotonic() > deadline:
                raise RunError(f"another process writes to {folder}; stop it, or choose another folder")
            time.sleep(0.1)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
