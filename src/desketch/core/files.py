"""Durable files: written whole or not at all, sealed, still there after a power cut, and one writer a folder.

A seal is the SHA-256 of a file inside the file itself, at a place that its own readers skip: a member of a JSON object,
the first comment of a YAML file, the metadata of a safetensors file.  It is taken with zeros in its place, so it covers
every byte.  A file too large to be made in memory has its seal at the end, over all before it (`stream_sealed`).
Whatever reaches the disk goes through the few calls of `os` below, which tests replace to lose power.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from desketch.errors import RunError

Buffer = bytes | memoryview
__all__ = [
    "BLANK",
    "SEAL_BYTES",
    "append_durably",
    "check_streamed",
    "check_writable",
    "intact",
    "make_folder",
    "read_sealed",
    "read_sealed_json",
    "remove",
    "seal",
    "sealed_json",
    "sealed_yaml",
    "stream_sealed",
    "write_durably",
]

BLANK = "0" * 64
SEAL_BYTES = 64
_PIECE = 8 << 20
_SEAL = re.compile(rb'(?:"sha256": ?"|\A# sha256: )([0-9a-f]{64})')


def seal(data: bytes) -> bytes:
    """Fill the blank seal of ``data``, the first seal there is."""
    place = _SEAL.search(data)
    if place is None or place[1] != BLANK.encode():
        raise ValueError("nothing to fill: the first seal of the data must be blank")
    return data[: place.start(1)] + hashlib.sha256(data).hexdigest().encode() + data[place.end(1) :]


def intact(data: bytes) -> bool:
    """Whether these are the bytes that were sealed; without a seal nobody can say, so no."""
    place = _SEAL.search(data)
    if place is None:
        return False
    blank = data[: place.start(1)] + BLANK.encode() + data[place.end(1) :]
    return hashlib.sha256(blank).hexdigest().encode() == place[1]


def sealed_json(values: Mapping[str, Any], indent: int | None = None) -> bytes:
    """One JSON object and a newline; its last member is the seal, over the bytes before the newline."""
    return seal(json.dumps({**values, "sha256": BLANK}, indent=indent).encode()) + b"\n"


def sealed_yaml(text: str) -> bytes:
    """A YAML file whose first line, a comment, is its seal."""
    return seal(f"# sha256: {BLANK}\n{text}".encode())


def read_sealed(path: Path, remedy: str) -> bytes:
    """The bytes of a sealed file; one that is missing or damaged is named, with what to do about it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{path} is missing; {remedy}") from None
    if not intact(data.removesuffix(b"\n") if path.suffix == ".json" else data):
        raise RunError(f"{path} is damaged: it does not match the SHA-256 inside it; {remedy}")
    return data


def read_sealed_json(path: Path, remedy: str) -> dict[str, Any]:
    """The object that `sealed_json` wrote, without its seal."""
    values: dict[str, Any] = json.loads(read_sealed(path, remedy))
    del values["sha256"]
    return values


def write_durably(path: Path, data: bytes | str) -> None:
    """Replace ``path`` by ``data`` in one step: a reader, or a machine that lost power, sees the old or the new file.

    The bytes reach the disk before the new name does, and the folder is flushed too: a rename that only the cache knows
    would be lost.
    """
    _replace(path, [data.encode() if isinstance(data, str) else data])


def stream_sealed(path: Path, parts: Iterable[Buffer]) -> None:
    """`write_durably` of the parts, one after the other, and the SHA-256 of them all at the end, in 64 digits.

    Nothing is put together in memory, and one part is summed by another thread while it is written.
    """
    with ThreadPoolExecutor(1) as other:
        _replace(path, _sealed_pieces(parts, other))


def check_streamed(path: Path, remedy: str) -> None:
    """Raise unless the file is the one that `stream_sealed` wrote; it is read in pieces."""
    try:
        left = path.stat().st_size - SEAL_BYTES
        with path.open("rb") as file:
            summed = hashlib.sha256()
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                summed.update(piece)
                left -= len(piece)
            if left == 0 and file.read() == summed.hexdigest().encode():
                return
    except FileNotFoundError:
        raise RunError(f"{path} is missing; {remedy}") from None
    raise RunError(f"{path} is damaged: it does not match the SHA-256 inside it; {remedy}")


def _sealed_pieces(parts: Iterable[Buffer], other: ThreadPoolExecutor) -> Iterator[Buffer]:
    summed = hashlib.sha256()
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE]
            done = other.submit(summed.update, piece)
            yield piece
            done.result()
    yield summed.hexdigest().encode()


def _replace(path: Path, pieces: Iterable[Buffer]) -> None:
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _put(temporary, os.O_TRUNC, pieces)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _of(error, path) from error
        raise
    _flush_folder(path.parent)


def append_durably(path: Path, line: bytes) -> None:
    """Add one line to a file; a line that a crash cut off before it keeps to itself."""
    new = not path.exists()
    torn = not new and path.stat().st_size > 0 and _last_byte(path) != b"\n"
    try:
        _put(path, os.O_APPEND, [b"\n" + line if torn else line])
    except OSError as error:
        raise _of(error, path) from error
    if new:
        _flush_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and flush where each is entered: files in a lost folder are lost."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(folder)
    _flush_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file that nobody needs; after a crash it may be back."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def check_writable(path: Path) -> None:
    """Raise the `OSError` that writing ``path`` would end in, by writing beside it; leaves nothing behind."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    place = path.parent
    while not place.exists():
        place = place.parent
    probe = place / f".{path.name}.{os.getpid()}.tmp"
    try:
        _put(probe, os.O_TRUNC, [])
    except OSError as error:
        raise _of(error, path) from error
    os.unlink(probe)


def _put(path: Path, how: int, pieces: Iterable[Buffer]) -> None:
    """Write to a file and wait until its bytes are on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _of(error: OSError, path: Path) -> OSError:
    """The error with the name it is about: a failed write or flush does not say of which file."""
    return OSError(error.errno, error.strerror or str(error), str(path))
