"""Table of docs/security.md from benchmarks/results/fuzz.json (`make fuzz RUNS=n TARGETS=name JSON=...`)."""

from __future__ import annotations

from typing import Any

READS = {
    "frame": "a full frame",
    "frames": "full frames one after another, a catch-up",
    "order": "a server's order",
    "payload": "a codec's payload",
    "reply": "a client's reply",
    "sealed": "header and payload of the fuzzer's choice under a right checksum",
    "short": "a short frame",
    "short_order": "a short order",
    "short_reply": "a short reply",
    "values": "numbers through every codec and back",
}


def targets(result: dict[str, Any]) -> str:
    """Every target: what it reads, how often, the edges it covered, the outcome; and all executions."""
    rows = result["targets"]
    lines = ["| target | reads | executions | edges covered | outcome |", "|---|---|---:|---:|---|"]
    for row in rows:
        executions, covered = f"{row['executions']:,}", f"{row['coverage']:,}"
        lines.append(f"| `{row['target']}` | {READS[row['target']]} | {executions} | {covered} | {row['outcome']} |")
    lines.append(f"| all | | {sum(row['executions'] for row in rows):,} | | |")
    return "\n".join(lines)
