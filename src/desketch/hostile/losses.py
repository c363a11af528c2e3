"""Points of accuracy that an attack costs, from the rows of `desketch.hostile.bench`.

The loss of a run is the accuracy of the honest run with the plain mean, same seed, partition and domain, less its own;
the loss of a cell is the mean over seeds, with its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

__all__ = ["Loss", "cell_losses", "loss", "losses"]

Row = dict[str, Any]
Loss = dict[str, Any]  # partition, attack, attackers, rule, domain; loss, error, seeds, limited
_CELL = ("partition", "attack", "attackers", "rule", "domain")


def loss(rows: Sequence[Row], row: Row) -> float:
    """Points lost by one run against nobody attacking and no rule."""
    for other in rows:
        if (other["attackers"], other["rule"]) == (0, "none") and all(
            other[name] == row[name] for name in ("seed", "partition", "domain")
        ):
            return float(100 * (other["accuracy"] - row["accuracy"]))
    where = ", ".join(str(row[name]) for name in ("partition", "domain", "seed"))
    raise LookupError(f"no honest run for {where}: measure without attackers too")


def cell_losses(rows: Sequence[Row]) -> list[Loss]:
    """One entry a cell: the mean loss over its seeds and the standard error of that mean (None for one seed)."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in _CELL), []).append(row)
    out = []
    for cell, runs in cells.items():
        lost = [loss(rows, row) for row in runs]
        error = stdev(lost) / sqrt(len(lost)) if len(lost) > 1 else None
        limited = sum(row["limited"] for row in runs)
        out.append(
            {**dict(zip(_CELL, cell, strict=True)), "loss": mean(lost), "error": error, "seeds": len(lost)}
            | {"limited": limited}
        )
    return out


def losses(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A table: heads, then one line a partition, attack and number of attackers; cells say "sketch / raw"."""
    lost = cell_losses(rows)
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = []
    for partition, attack, count in dict.fromkeys((r["partition"], r["attack"], r["attackers"]) for r in lost):
        line = [str(partition), "-" if attack is None else f"{attack}, {count}"]
        for rule in rules:
            here = {
                r["domain"]: f"{r['loss']:.1f}"
                for r in lost
                if (r["partition"], r["attack"], r["attackers"], r["rule"]) == (partition, attack, count, rule)
            }
            line.append(f"{here.get('sketch', '-')} / {here.get('raw', '-')}" if here else "")
        lines.append(line)
    return ["data", "attack", *(rule.partition(":")[0] for rule in rules)], lines
