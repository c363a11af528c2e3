"""What a connection has cost its network interface, as the kernel counted it: payload, headers and acknowledgements.

Linux keeps bytes and segments of every TCP socket (``TCP_INFO``, linux/tcp.h); a segment costs 54 bytes of Ethernet,
IPv4 and TCP headers, and 12 more where TCP timestamps are on.  Elsewhere nothing is counted.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

__all__ = ["Traffic", "of_socket"]

_OPTIONS, _RECEIVED, _SEGMENTS, _SENT = (
    5,
    128,
    136,
    200,
)  # offsets of tcpi_options, bytes_received, segs_out, bytes_sent
_HEADERS, _TIMESTAMPS = 54, 12


class Traffic(NamedTuple):
    """Bytes at the interface."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: object) -> Traffic:  # sums, not concatenation
        if not isinstance(other, Traffic):
            return NotImplemented
        return Traffic(self.sent + other.sent, self.received + other.received)


def of_socket(link: socket.socket | None) -> Traffic:
    """What this connection has moved so far."""
    try:
        assert link is not None
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        segments_out, segments_in = struct.unpack_from("<II", info, _SEGMENTS)
        (received,), (sent,) = struct.unpack_from("<Q", info, _RECEIVED), struct.unpack_from("<Q", info, _SENT)
    except (AssertionError, AttributeError, OSError, struct.error):
        return Traffic()
    headers = _HEADERS + (_TIMESTAMPS if info[_OPTIONS] & 1 else 0)
    return Traffic(sent + headers * segments_out, received + headers * segments_in)
