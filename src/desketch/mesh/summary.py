"""What a run without a server adds to its summary: bytes by node, hops, and the protocols side by side on links."""

from __future__ import annotations

from typing import Any

import numpy as np

from desketch.mesh.averaging import chebyshev_bound, hops_for
from desketch.mesh.costs import AccessLink, protocol_costs
from desketch.mesh.gossip import GossipMesh
from desketch.mesh.rounds import Mesh

__all__ = ["topology_summary"]

LINK = AccessLink(bits_per_second=1e6, latency=0.05)


def topology_summary(mesh: Mesh, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Facts of the graph, of the traffic, and the cost of one average by protocol."""
    topology = mesh.topology
    hops = mesh.exchanges if isinstance(mesh, GossipMesh) else hops_for(topology.mixing, 0.01)
    sent = mesh.bytes_per_node
    facts: dict[str, Any] = {
        "graph": topology.name,
        "nodes": topology.n,
        "edges": topology.edges.tolist(),
        "second eigenvalue": topology.mixing,
        "bytes per node": float(sent.mean()),
        "bytes of the busiest node": int(sent.max()),
        "bytes per edge": float(sent.sum() / len(topology.edges)),
        "hops per round": float(np.mean([row["hops"] for row in rows])) if rows else 0.0,
        "catch-up bytes": sum(row["bytes_catch_up"] for row in rows),
        "rounds in pieces": sum(row["components"] > 1 for row in rows),
        "final consensus distance": rows[-1]["consensus"] if rows else 0.0,
        "gossip leaves at most": chebyshev_bound(topology.mixing, hops),
    }
    frame = len(mesh.channel.encode_broadcast(1, mesh.w0.new_zeros(mesh.channel.b)))
    costs = protocol_costs(
        topology, frame=frame, partial=mesh.partial_bytes(), exchange=mesh.exchange_bytes(), hops=hops, link=LINK
    )
    return {**facts, "one average": {cost.protocol: vars(cost) for cost in costs}}
