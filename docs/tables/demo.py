"""The demo's closing table for the README, from ``desketch train --json benchmarks/results/demo.json``."""

from __future__ import annotations

from typing import Any


def table(result: dict[str, Any]) -> str:
    """What the default run reached and sent."""
    sent = result["bytes_up_per_client"] + result["bytes_down_per_client"]
    fedavg = result["fedavg_bytes_per_client"]
    return "\n".join(
        [
            "| test accuracy | rounds | sent and received per client | FedAvg in as many rounds |",
            "|---|---|---|---|",
            f"| {result['test_accuracy']:.1%} | {result['rounds']} | {sent / 1e3:.1f} kB | {fedavg / 1e6:.1f} MB |",
        ]
    )
