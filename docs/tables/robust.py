"""Tables of docs/robust.md from ``benchmarks/results/robust.json``."""

from __future__ import annotations

from statistics import mean
from typing import Any

from desketch.hostile.losses import cell_losses, losses


def points(result: dict[str, Any]) -> str:
    """Points of accuracy lost, by partition, attack and rule: on sketches / on raw updates."""
    rows, bed = result["rows"], result["bed"]
    honest: dict[str, list[float]] = {}
    for row in rows:
        if row["attackers"] == 0 and row["rule"] == "none":
            honest.setdefault(f"{row['partition']}, {row['domain']}", []).append(row["accuracy"])
    plain = "; ".join(f"{where} {mean(accuracies):.1%}" for where, accuracies in honest.items())
    seeds = len({row["seed"] for row in rows})
    heads, lines = losses(rows)
    out = [
        f"{bed['clients']} clients, {bed['model']}, {bed['rounds']} rounds of {bed['local_steps']} local steps, "
        f"compression {bed['compression']:g}, {bed['codec']}; "
        f"means over {seeds} seed{'s' if seeds > 1 else ''}. Honest, plain mean: {plain}.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(line)} |" for line in lines),
    ]
    return "\n".join(out)


def marks(result: dict[str, Any]) -> str:
    """What was asked of the rules, and what came of it."""
    rows = cell_losses(result["rows"])
    first = [r for r in rows if r["attackers"] == 1 and r["attack"] in ("sign-flip", "weight", "gaussian")]
    default = [r for r in first if r["domain"] == "sketch" and r["rule"] == "norm-bound"]
    honest = [r for r in rows if r["attackers"] == 0 and r["domain"] == "sketch"]
    out = ["| asked | worst | where |", "|---|---|---|"]
    if default:
        worst = max(default, key=lambda r: r["loss"])
        out.append(
            f"| default, one attacker of the first three kinds: at most 1 point | {_number(worst)} "
            f"| {worst['attack']}, {worst['partition']} |"
        )
    default_honest = [r for r in honest if r["rule"] == "norm-bound"]
    if default_honest:
        worst = max(default_honest, key=lambda r: r["loss"])
        out.append(
            f"| default, nobody attacks: at most 0.3 points | {_number(worst)} "
            f"| {worst['partition']} ({worst['limited']} updates bounded) |"
        )
    return "\n".join([*out, *_best(rows)])


def _best(rows: list[dict[str, Any]]) -> list[str]:
    """For 4 of 20: per attack and partition, the best rule on sketches, beside the same rule on raw updates."""
    out = []
    attacked = [r for r in rows if r["attackers"] == 4 and r["attack"] != "absent" and r["rule"] != "none"]
    for partition, attack in dict.fromkeys((r["partition"], r["attack"]) for r in attacked):
        here = [r for r in attacked if (r["partition"], r["attack"]) == (partition, attack)]
        raw = {r["rule"]: r["loss"] for r in here if r["domain"] == "raw"}
        ours = [r for r in here if r["domain"] == "sketch" and r["rule"] in raw]
        if not ours:
            continue
        best = min(ours, key=lambda r: r["loss"])
        name, there = best["rule"].partition(":")[0], raw[best["rule"]]
        out.append(
            f"| best rule, 4 of 20, {attack}, {partition}: at most 3 where it does on raw ({there:.1f} there) "
            f"| {_number(best)} | {name} |"
        )
    return out


def _number(row: dict[str, Any]) -> str:
    """A mean loss with its standard error."""
    return f"{row['loss']:.2f}" + ("" if row["error"] is None else f" ± {row['error']:.2f}")
