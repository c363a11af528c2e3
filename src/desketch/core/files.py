"""Durable files: written whole or not at all, still there after a power cut, and one writer a folder."""

from __future__ import annotations

import os
from pathlib import Path

from desketch.core.locks import sole_writer

__all__ = ["sole_writer", "write_durably"]


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
