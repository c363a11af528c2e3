"""One writer a folder: the kernel's lock, and where the folder lies on a network an owner file beside it.

``flock`` ends with the process that holds it, however that ends, and on a local disk it is all that is needed.  Over a
network it is not: NFS turns it into a byte-range lock at the server or, mounted with ``nolock`` or ``local_lock``,
keeps it to one machine without saying so; other network file systems differ.  There a writer also creates
``NAME.owner`` with O_EXCL, which is atomic on NFS from version 3 on.  An owner file is stale when its machine has been
started again since, or when its process (by number and start time) is gone; that can be told on the owner's own machine
only, so a lock of another machine is refused, with advice.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from desketch.core.files import make_folder
from desketch.errors import RunError

__all__ = ["sole_writer"]

PATIENCE_SECONDS = 60.0
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "tmpfs", "ramfs"}
_LOCAL |= {"overlay", "vfat", "exfat", "ntfs3"}


@contextmanager
def sole_writer(folder: Path | None, *, seconds: float = PATIENCE_SECONDS, name: str = "writer.lock") -> Iterator[None]:
    """Hold the folder for the block, waiting for another holder at most ``seconds``; no folder needs no lock."""
    if folder is None:
        yield
        return
    make_folder(folder)
    deadline = time.monotonic() + seconds
    with (folder / name).open("a") as file:
        kernel = _flock(file.fileno())
        while kernel is False:
            if time.monotonic() > deadline:
                raise RunError(f"another process writes to {folder}; stop it, or choose another folder")
            time.sleep(0.1)
            kernel = _flock(file.fileno())
        if kernel and filesystem(folder) in _LOCAL:
            yield
            return
        with _owned(folder / f"{name}.owner", kernel=bool(kernel)):
            yield


@dataclass(frozen=True)
class Owner:
    """A process, told apart from all others: of other machines, of other boots, and of another life of its number."""

    host: str
    machine: str
    boot: str
    pid: int
    start: str

    @classmethod
    def here(cls) -> Owner:
        """The process that asks."""
        pid = os.getpid()
        return cls(socket.gethostname(), _line("/etc/machine-id"), _boot(), pid, _start(pid) or "")

    def judge(self, me: Owner) -> str:
        """Whether it still lives, as far as ``me`` can tell: "alive", "gone" or "elsewhere"."""
        if (self.host, self.machine) != (me.host, me.machine) or not self.boot:
            return "elsewhere"
        if self.boot != me.boot:
            return "gone"  # its machine was started again since
        return "alive" if _start(self.pid) == self.start else "gone"


@contextmanager
def _owned(path: Path, *, kernel: bool) -> Iterator[None]:
    """Hold the owner file; ``kernel`` says whether this machine's other processes are already kept out."""
    me = Owner.here()
    text = json.dumps(asdict(me))
    while not _create(path, text):
        other = _read(path)
        judged = other.judge(me) if other else "elsewhere"
        if judged != "gone" or not kernel:
            who = f"process {other.pid} of {other.host}" if other else "somebody"
            raise RunError(
                f"{who} writes to {path.parent}, says {path}; stop it, or choose another folder. If it has ended, "
                "delete that file: over a network this cannot be seen from here"
            )
        path.unlink(missing_ok=True)  # only one process of this machine is here, and no other machine may
    try:
        yield
    finally:
        if _read(path) == me:
            path.unlink(missing_ok=True)


def _create(path: Path, text: str) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return True


def _read(path: Path) -> Owner | None:
    try:
        return Owner(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _flock(descriptor: int) -> bool | None:
    """Whether the kernel gave the lock; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # ENOLCK, EOPNOTSUPP: the owner file decides alone
        return None
    return True


def filesystem(folder: Path) -> str:
    """The type of the file system that holds the folder, or "" where it cannot be told."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return ""
    here = folder.resolve()
    held = ""
    depth = -1
    for fields in mounts:  # in order of mounting: of two at one place, the later one counts
        place = Path(fields[4].encode().decode("unicode_escape"))
        if here.is_relative_to(place) and len(place.parts) >= depth:
            depth, held = len(place.parts), fields[fields.index("-") + 1]
    return held


def _boot() -> str:
    return _line("/proc/sys/kernel/random/boot_id")


def _start(pid: int) -> str | None:
    """When the process was started, in clock ticks since boot; None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
