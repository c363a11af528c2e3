"""Stamp: four bytes before every order, by which a client drops what is older than what it has.

A broker delivers in order, but a message may come twice or late: from a bridge, a session that is resumed, a proxy.
The first two bytes are drawn when the server's process starts, the others count its sends; a client compares stamps of
one process only, so a server that starts over is heard.  A stamp alone, with no order, says that the run is over.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

__all__ = ["Stamp", "Stamps"]

_FORM = struct.Struct("<2sH")


class Stamp(NamedTuple):
    """Which process of the server sent an order, and as its how-manieth."""

    process: bytes
    serial: int

    @classmethod
    def split(cls, data: bytes) -> tuple[Stamp, bytes] | None:
        """The stamp and the order, or None for what is too short to have one."""
        if len(data) < _FORM.size:
            return None
        return cls(*_FORM.unpack_from(data)), data[_FORM.size :]

    def before(self, other: Stamp | None) -> bool:
        """Whether the same process sent this one earlier than the other."""
        return other is not None and self.process == other.process and 0 < (other.serial - self.serial) % 65536 < 32768


class Stamps:
    """The stamps of one process."""

    def __init__(self) -> None:
        self._process, self._count = os.urandom(2), 0

    def next(self) -> bytes:
        """The stamp of the next send."""
        self._count += 1
        return _FORM.pack(self._process, self._count % 65536)
