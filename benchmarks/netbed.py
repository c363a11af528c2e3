"""A bed of thin wires on one machine: network namespaces on a bridge, each link shaped both ways by a token bucket.

Needs root, ``ip`` and ``tc`` (iproute2).  Every host i lives in its own namespace with the address ``10.77.0.(i+1)``;
its uplink is shaped in the namespace and its downlink on the bridge's side, with a burst of 16 kB, or of 2 kB where
messages are so short that 16 kB would hide the link.  No traffic leaves the machine: the bridge has no address and no
other port.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Host", "bed", "missing"]

BURST, LATENCY = "16kb", "500ms"
_SERIAL = itertools.cycle("abcdefgh")


@dataclass(frozen=True)
class Host:
    """One namespace: its name, its interface and its address."""

    namespace: str
    interface: str
    address: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run inside the namespace."""
        return ["ip", "netns", "exec", self.namespace, *argv]

    def counters(self) -> tuple[int, int]:
        """Bytes (sent, received) by the interface, headers included."""
        folder = f"/sys/class/net/{self.interface}/statistics"
        read = subprocess.check_output(self.command(["cat", f"{folder}/tx_bytes", f"{folder}/rx_bytes"]), text=True)
        sent, received = map(int, read.split())
        return sent, received


def missing() -> str | None:
    """Why the bed cannot be built here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if lacking:
        return f"{' and '.join(lacking)} not found: install iproute2"
    probe = subprocess.run(["ip", "netns", "add", f"probe{os.getpid()}"], capture_output=True, text=True)
    if probe.returncode:
        return f"cannot make a network namespace: {probe.stderr.strip()}"
    _run("ip", "netns", "del", f"probe{os.getpid()}")
    return None


@contextmanager
def bed(hosts: int, rate: str | None, *, burst: str = BURST, latency: str = LATENCY) -> Iterator[list[Host]]:
    """Yield ``hosts`` namespaces whose links run at ``rate`` (as ``tc`` writes it: "20mbit"), or unshaped for None.

    ``latency`` is how long a packet may wait for the link before it is dropped.
    """
    tag = f"dsk{os.getpid() % 100000}{next(_SERIAL)}"  # a deleted namespace lets go of its names only later
    made = [Host(f"{tag}-{i}", f"{tag}e{i}", f"10.77.0.{i + 1}") for i in range(hosts)]
    bridge = f"{tag}b"
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
        for i, host in enumerate(made):
            outside = f"{tag}o{i}"
            _run("ip", "netns", "add", host.namespace)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", host.interface)
            _run("ip", "link", "set", host.interface, "netns", host.namespace)
            _run("ip", "link", "set", outside, "master", bridge, "up")
            _run(*host.command(["ip", "addr", "add", f"{host.address}/24", "dev", host.interface]))
            _run(*host.command(["ip", "link", "set", "lo", "up"]))
            _run(*host.command(["ip", "link", "set", host.interface, "up"]))
            if rate is not None:
                shape = ["root", "tbf", "rate", rate, "burst", burst, "latency", latency]
                _run("tc", "qdisc", "add", "dev", outside, *shape)
                _run(*host.command(["tc", "qdisc", "add", "dev", host.interface, *shape]))
        yield made
    finally:
        for i, host in enumerate(made):
            subprocess.run(["ip", "link", "del", f"{tag}o{i}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
