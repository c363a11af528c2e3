"""How ``desketch train`` shows a finished run: its summary as a table, and the protocols of a mesh side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from desketch.core.metrics import METRICS
from desketch.core.units import human_bytes
from desketch.fed.signal import Signal, sentence

__all__ = ["show"]

_ENDS = {"interrupt": ", then interrupted", "budget": ", then the privacy budget was spent"}


def show(summary: dict[str, Any], path: Path, *, command: str = "desketch train") -> None:
    """Print the summary; an interrupted run says how to go on."""
    table = Table(title=command, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    times = _times(summary["times_fewer_bytes"])
    lines = {
        **_judgement(summary),
        "rounds": f"{summary['rounds']}{_ENDS.get(summary['stopped_by'], '')}",
        "up per client": human_bytes(summary["bytes_up_per_client"]),
        "down per client": human_bytes(summary["bytes_down_per_client"]),
        "FedAvg, same rounds": f"{human_bytes(summary['fedavg_bytes_per_client'])}{times}",
        "replica digest": summary["replica_digest"][:16],
        "seconds": "not told" if summary["seconds"] is None else f"{summary['seconds']:,.3g}",
        "run folder": str(path),
        "report": str(path / "report.html"),
    }
    if summary["epsilon"] is not None:
        lines["privacy"] = f"({summary['epsilon']:.3g}, {summary['delta']:g})-DP"
    if summary["refused"]:
        lines["refused updates"] = str(summary["refused"])
    if summary["stopped_by"] == "interrupt":
        lines["continue with"] = f"desketch train --resume --out {path}"
    for name, value in lines.items():
        table.add_row(name, value)
    Console().print(table)
    if summary.get("signal_share") is not None:
        said = sentence(Signal(summary["signal_share"], summary["step_share"]))
        Console().print(f"{said} (docs/training.md)", highlight=False)
    if (idle := summary["skipped_rounds"] or 0) > summary["rounds"] / 4:
        why = "their reasons are in metrics.jsonl; where steps ran away, lower --eta-local or --compression"
        Console().print(f"warning: {idle} of {summary['rounds']} rounds had no update that could be used: {why}")
    if summary.get("alone"):
        style = "" if summary["alone"]["pays"] else "yellow"
        Console().print(summary["alone"]["advice"], style=style, highlight=False)
    if "topology" in summary:
        _print_costs(summary["topology"])


def _times(factor: float | None) -> str:
    return f" ({factor:,.0f} times as much)" if factor and factor >= 2 else ""


def _judgement(summary: dict[str, Any]) -> dict[str, str]:
    """The test metrics of a summary, for people; the one that judges first comes first."""
    known = {name: summary.get(f"test_{name}") for name in METRICS}
    return {f"test {METRICS[name].title}": METRICS[name].show(v) for name, v in known.items() if v is not None}


def _print_costs(facts: dict[str, Any]) -> None:
    """The comparison as a table."""
    table = Table(title=f"one average on {facts['graph']}, access links of 1 Mbit/s, 50 ms", title_justify="left")
    for name in ("protocol", "hops", "bytes in all", "busiest node", "seconds"):
        table.add_column(name, justify="left" if name == "protocol" else "right")
    for cost in facts["one average"].values():
        total, busiest = (human_bytes(cost[name]) for name in ("bytes_total", "bytes_busiest"))
        table.add_row(cost["protocol"], str(cost["hops"]), total, busiest, f"{cost['seconds']:.2f}")
    Console().print(table)
