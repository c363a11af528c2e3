"""Tables of docs/theory.md from benchmarks/results/verify.json (`desketch verify --worst --json ...`)."""

from __future__ import annotations

from typing import Any

# how a statement's label begins -> where it is in the code; the first that fits
CODE = (
    ("Algorithm 1", "fed/rounds.py"),
    ("thm:enc_dec", "theory/embedding.py"),
    ("lem:expectation", "theory/embedding.py"),
    ("lem:var_", "theory/embedding.py"),
    ("thm:single", "theory/single_step.py"),
    ("thm:kstep", "theory/local_steps.py"),
    ("theorem of sec:app_kstep_non", "theory/local_steps.py"),
    ("thm:communication", "verify/corollaries.py"),
    ("remark on linear rates", "verify/corollaries.py"),
    *((f"lem:{name}", "verify/lemmas.py") for name in ("update_rule", "gtk", "vtk", "rt", "objective_move")),
    ("weighted sketch", "sketches/weights.py"),
    ("best weights", "sketches/weights.py"),
    ("eq:", "verify/lemmas.py"),
    ("fact:", "verify/lemmas.py"),
    ("lem:", "theory/tails.py"),
)


def bounds(result: dict[str, Any]) -> str:
    """Every statement that holds on simulated runs: printed or corrected, hardest measured/bound."""
    return _table([row for row in _held(result) if not _shipped(row)])


def shipped(result: dict[str, Any]) -> str:
    """The same of the shipped system: frames of every codec through `desketch.fed`."""
    return _table([row for row in _held(result) if _shipped(row)])


def refuted(result: dict[str, Any]) -> str:
    """Every printed statement that is false, with its counter-example."""
    lines = ["| statement, as printed | counter-example | measured / claimed |", "|---|---|---:|"]
    for row in result["rows"]:
        if row["refuted"] and not row.get("slip"):
            lines.append(f"| `{row['theorem']}` | {row['family']}: {row['setting']} | {row['worst_ratio']:.3g} |")
    return "\n".join(lines)


def slips(result: dict[str, Any]) -> str:
    """What the paper prints in one place and uses rightly in another."""
    lines = ["| as printed | what it does | measured / promised of a round |", "|---|---|---:|"]
    for row in result["rows"]:
        if row.get("slip"):
            lines.append(f"| {row['theorem']} | {row['family']}: {row['setting']} | {row['worst_ratio']:.3g} |")
    return "\n".join(lines)


def summary(result: dict[str, Any]) -> str:
    """How many checks, how many violated, and what they cost."""
    rows = result["rows"]
    violated = sum(row["holds"] is row["refuted"] for row in rows)
    checks = sum(row["checks"] for row in rows)
    return f"{checks:,} checks, {violated} statements not as expected, {result['cpu_seconds']:.0f} s of one core."


def _held(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["rows"] if not row["refuted"]]


def _shipped(row: dict[str, Any]) -> bool:
    return "shipped" in row["theorem"] or "over the wire" in row["theorem"]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| statement | in the paper | in the code | form | checks | measured / bound | hardest case | verdict |",
        "|---|---|---|---|---:|---:|---|---|",
    ]
    for row in rows:
        code = next(file for start, file in CODE if row["theorem"].startswith(start))
        form = "corrected" if row["corrected"] else "as printed"
        verdict = row["verdict"] if row["holds"] else f"**{row['verdict']}**"
        lines.append(
            f"| `{row['theorem']}` | {row['paper']} | `{code}` | {form} | {row['checks']} | {row['worst_ratio']:.3f} "
            f"({row['method']}) | {row['family']}; {row['setting']} | {verdict} |"
        )
    return "\n".join(lines)
