"""One average among 10,000 nodes of b = 1000 numbers, exact and by gossip, on one machine.

python benchmarks/mesh.py --nodes 10000 --b 1000        writes benchmarks/results/mesh.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from desketch.mesh.averaging import gossip, hops_for, tree_mean
from desketch.mesh.costs import AccessLink, protocol_costs
from desketch.mesh.topology import build_topology

RESULT = Path(__file__).parent / "results" / "mesh.json"
GRAPHS = ("star", "tree:3", "regular:8", "smallworld:8,0.1", "erdos", "grid", "ring")
LINK = AccessLink(bits_per_second=1e6, latency=0.05)


def measure(spec: str, nodes: int, b: int, tolerance: float) -> dict[str, Any]:
    """Time both protocols on one graph, and cost them on 1 Mbit/s access links with one-bit frames."""
    values = np.random.default_rng(0).normal(size=(nodes, b)).astype(np.float32)
    weights = np.ones(nodes)
    topology = build_topology(spec, nodes, seed=1)
    started = time.perf_counter()
    tree = topology.spanning_tree(topology.components()[0])
    mean, _ = tree_mean(values, weights, tree)
    exact_seconds = time.perf_counter() - started
    started = time.perf_counter()
    hops = hops_for(topology.mixing, tolerance)
    row: dict[str, Any] = {"graph": spec, "edges": len(topology.edges), "mixing": topology.mixing, "hops": hops}
    if hops <= 300:  # beyond that nobody would gossip; the row says how many hops it would take
        result = gossip(values, weights, topology, hops=hops)
        row["gossip_seconds"] = time.perf_counter() - started
        row["gossip_left_over"] = float(np.linalg.norm(result.means - mean) / np.linalg.norm(values - mean))
        row["gossip_bound"] = result.bound
    error = float(np.abs(mean - values.mean(0, dtype=np.float64)).max())
    frame, partial, exchange = 25 + b // 8, 25 + 4 * b, 25 + 4 * (2 * b + 2)
    costs = protocol_costs(topology, frame=frame, partial=partial, exchange=exchange, hops=hops, link=LINK)
    row |= {"exact_seconds": exact_seconds, "exact_error": error, "depth": tree.depth}
    row["costs"] = {cost.protocol: vars(cost) for cost in costs}
    return row


def main() -> None:
    """Measure every graph and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--b", type=int, default=1000)
    parser.add_argument("--tolerance", type=float, default=0.01)
    args = parser.parse_args()
    rows = []
    for spec in GRAPHS:
        rows.append(measure(spec, args.nodes, args.b, args.tolerance))
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "costs"}))
    result = {
        "command": f"python benchmarks/mesh.py --nodes {args.nodes} --b {args.b} --tolerance {args.tolerance}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "nodes": args.nodes,
        "b": args.b,
        "tolerance": args.tolerance,
        "link": {"bits_per_second": LINK.bits_per_second, "latency": LINK.latency},
        "graphs": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    temporary = RESULT.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, RESULT)


if __name__ == "__main__":
    main()
