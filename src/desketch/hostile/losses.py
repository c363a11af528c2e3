"""Points of accuracy that an attack costs, from the rows of `desketch.hostile.bench`.

The loss of a cell is the accuracy of the honest run with the plain mean, same partition and domain, less the cell's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["loss", "losses"]

Row = dict[str, Any]


def loss(rows: Sequence[Row], row: Row) -> float:
    """Points lost against nobody attacking and no rule."""
    for other in rows:
        if (other["attackers"], other["rule"]) == (0, "none") and all(
            other[name] == row[name] for name in ("partition", "domain")
        ):
            return float(100 * (other["accuracy"] - row["accuracy"]))
    raise LookupError(f"no honest run for {row['partition']}, {row['domain']}: measure without attackers too")


def losses(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A table: heads, then one line a partition, attack and number of attackers; cells say "sketch / raw"."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = []
    for partition, attack, count in dict.fromkeys((r["partition"], r["attack"], r["attackers"]) for r in rows):
        line = [str(partition), "-" if attack is None else f"{attack}, {count}"]
        for rule in rules:
            here = {
                r["domain"]: f"{loss(rows, r):.1f}"
                for r in rows
                if (r["partition"], r["attack"], r["attackers"], r["rule"]) == (partition, attack, count, rule)
            }
            line.append(f"{here.get('sketch', '-')} / {here.get('raw', '-')}" if here else "")
        lines.append(line)
    return ["data", "attack", *(rule.partition(":")[0] for rule in rules)], lines
