"""Tables of docs/ddp.md from benchmarks/results/ddp_steps.json."""

from __future__ import annotations

from typing import Any

MARK = 6.0


def steps(result: dict[str, Any]) -> str:
    """One row a hook, one column a rate."""
    rates = result["rates"]
    first = next(iter(rates.values()))
    lines = ["| hook | payload, kB |" + "".join(f" {rate}: s/step (times plain) |" for rate in rates)]
    lines.append("|---|---:|" + "---:|" * len(rates))
    for i, row in enumerate(first):
        cells = "".join(f" {rates[r][i]['seconds']:.4f} ({rates[r][i]['times_plain']}x) |" for r in rates)
        lines.append(f"| {row['hook']} | {row['payload_bytes'] / 1e3:.1f} |{cells}")
    return "\n".join(lines)


def marks(result: dict[str, Any]) -> str:
    """The two marks at 20 Mbit/s, and what was got."""
    rows = {row["hook"]: row for row in result["rates"]["20 Mbit/s"]}
    ten = rows["sketch 10x"]["times_plain"]
    lines = [
        "| mark at 20 Mbit/s | got | reached |",
        "|---|---|---|",
        f"| 10x compression at least {MARK:g}x faster steps than plain | {ten}x | {_yes(ten >= MARK)} |",
    ]
    for name, row in rows.items():
        if name.startswith("powersgd"):
            ours = rows[name.replace("powersgd", "sketch as")]["seconds"]
            lines.append(
                f"| not slower than {name} at equal bytes | {ours:.4f} s against {row['seconds']:.4f} s "
                f"| {_yes(ours <= row['seconds'])} |"
            )
    return "\n".join(lines)


def _yes(reached: bool) -> str:
    return "yes" if reached else "no"
