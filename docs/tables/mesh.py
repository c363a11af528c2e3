"""Tables of docs/decentralised.md from ``benchmarks/results/mesh.json``."""

from __future__ import annotations

from typing import Any


def averages(result: dict[str, Any]) -> str:
    """Seconds of one average on one machine, by graph."""
    lines = [
        f"{result['nodes']:,} nodes, b = {result['b']}, gossip to {result['tolerance']:.0%} of the disagreement "
        f"({result['machine']}; `{result['command']}`):",
        "",
        "| graph | edges | exact: hops | exact: seconds | gossip: hops | gossip: seconds | left over (bound) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["graphs"]:
        ran = "gossip_seconds" in row
        seconds = f"{row['gossip_seconds']:.1f}" if ran else "not run"
        left = f"{row['gossip_left_over']:.2%} ({row['gossip_bound']:.2%})" if ran else ""
        lines.append(
            f"| {row['graph']} | {row['edges']:,} | {2 * row['depth']:,} | {row['exact_seconds']:.1f} "
            f"| {row['hops']:,} | {seconds} | {left} |"
        )
    return "\n".join(lines)


def costs(result: dict[str, Any]) -> str:
    """Bytes and time of one average on access links, server against tree against gossip."""
    link = result["link"]
    lines = [
        f"One-bit frames of b = {result['b']} numbers, access links of {link['bits_per_second'] / 1e6:g} Mbit/s and "
        f"{1000 * link['latency']:g} ms:",
        "",
        "| graph | protocol | hops | kB in all | kB at the busiest node | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["graphs"]:
        for protocol, cost in row["costs"].items():
            if protocol == "server" and row is not result["graphs"][0]:
                continue
            graph = "any" if protocol == "server" else row["graph"]
            lines.append(
                f"| {graph} | {protocol} | {cost['hops']:,} | {cost['bytes_total'] / 1e3:,.0f} "
                f"| {cost['bytes_busiest'] / 1e3:,.1f} | {cost['seconds']:,.1f} |"
            )
    return "\n".join(lines)
