"""What one average costs with a server, over a tree and by gossip: bytes, hops, and time on a given access link.

Every node has one access link of its own: what it sends (or receives) in a hop shares that link, and a hop takes the
latency plus the time of the busiest node.  A server pays for all clients at once; a tree spreads that over its levels;
gossip repeats small exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from desketch.mesh.topology import Topology

__all__ = ["AccessLink", "ProtocolCost", "protocol_costs"]


@dataclass(frozen=True, kw_only=True)
class AccessLink:
    """A node's access link."""

    bits_per_second: float
    latency: float = 0.05

    def hop(self, busiest: float) -> float:
        """Seconds of a hop in which the busiest node moves so many bytes."""
        return self.latency + 8.0 * busiest / self.bits_per_second


@dataclass(frozen=True)
class ProtocolCost:
    """One average of all nodes' sketches."""

    protocol: str
    hops: int
    bytes_total: int
    bytes_busiest: int  # sent and received by the busiest node
    seconds: float


def protocol_costs(
    topology: Topology, *, frame: int, partial: int, exchange: int, hops: int, link: AccessLink
) -> list[ProtocolCost]:
    """The three protocols side by side.

    ``frame`` is the size of a client's frame and of the broadcast, ``partial`` that of a partial sum in f32,
    ``exchange`` that of a gossip message, ``hops`` the gossip hops a round.
    """
    return [
        _served(topology.n, frame, link),
        _tree(topology, frame, partial, link),
        _gossip(topology, exchange, hops, link),
    ]


def _served(n: int, frame: int, link: AccessLink) -> ProtocolCost:
    return ProtocolCost("server", 2, 2 * n * frame, 2 * n * frame, 2 * link.hop(n * frame))


def _tree(topology: Topology, frame: int, partial: int, link: AccessLink) -> ProtocolCost:
    tree = topology.spanning_tree(topology.components()[0])
    up = np.zeros(topology.n)
    bundle = np.full(topology.n, frame)
    received = np.zeros(topology.n)
    for node, parent in zip(tree.nodes[:0:-1].tolist(), tree.parent[:0:-1].tolist(), strict=True):
        up[node] = min(int(bundle[node]), partial)
        bundle[parent] += int(up[node])
        received[parent] += up[node]
    children = np.bincount(tree.parent[1:], minlength=topology.n)
    level = np.zeros(topology.n, dtype=np.int64)
    level[tree.nodes] = tree.level
    seconds = sum(
        link.hop(float(received[level == depth].max())) + link.hop(float(children[level == depth].max()) * frame)
        for depth in range(tree.depth)
    )
    busiest = float((up + received + children * frame + frame).max())
    total = float(up.sum()) + frame * (topology.n - 1)
    return ProtocolCost("tree", 2 * tree.depth, int(total), int(busiest), seconds)


def _gossip(topology: Topology, exchange: int, hops: int, link: AccessLink) -> ProtocolCost:
    busiest = int(topology.degrees.max()) * exchange
    total = int(topology.degrees.sum()) * exchange * hops
    return ProtocolCost("gossip", hops, total, 2 * busiest * hops, hops * link.hop(busiest))
