"""Tables of docs/theory.md from benchmarks/results/verify.json (`desketch verify --worst --json ...`)."""

from __future__ import annotations

from typing import Any

# statement of the report -> where it stands in the paper, where in the code
WHERE = {
    "thm:enc_dec": ("Theorem on sk/desk, Table of alpha", "theory/embedding.py"),
    "lem:gaussian_ip": ("Appendix, inner products", "theory/tails.py"),
    "lem:gaussian_inf": ("Appendix, infinite norm", "theory/tails.py"),
    "lem:cs_inf_2": ("Appendix, infinite norm (Chebyshev)", "theory/tails.py"),
    "lem:srht_ip": ("Appendix, inner products", "theory/tails.py"),
    "lem:srht_ams_inf": ("Appendix, infinite norm", "theory/tails.py"),
    "lem:ams_ip": ("Appendix, inner products", "theory/tails.py"),
    "lem:cs_ip": ("Appendix, inner products", "theory/tails.py"),
    "lem:cs_inf": ("Appendix, infinite norm", "theory/tails.py"),
    "lem:sparse_ip": ("Appendix, inner products", "theory/tails.py"),
    "lem:sparse_inf": ("Appendix, infinite norm", "theory/tails.py"),
    "lem:uniform_inf": ("Appendix, infinite norm", "theory/tails.py"),
    "Algorithm 1": ("Algorithm 1", "fed/rounds.py"),
}
SINGLE = ("Appendix, single-step scheme", "theory/single_step.py")
LOCAL = ("Appendix, K-step", "theory/local_steps.py")


def bounds(rows: list[dict[str, Any]]) -> str:
    """Every statement that holds: printed or corrected, hardest measured/bound."""
    return _table([row for row in rows if not row["refuted"]], "holds")


def refuted(rows: list[dict[str, Any]]) -> str:
    """Every printed statement that is false, with its counter-example."""
    lines = ["| statement, as printed | counter-example | measured / claimed |", "|---|---|---:|"]
    for row in rows:
        if row["refuted"]:
            lines.append(f"| `{row['theorem']}` | {row['family']}: {row['setting']} | {row['worst_ratio']:.3g} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """How many checks, how many violated."""
    violated = sum(row["holds"] is row["refuted"] for row in rows)
    return f"{sum(row['checks'] for row in rows):,} checks, {violated} statements not as expected."


def _table(rows: list[dict[str, Any]], word: str) -> str:
    lines = [
        "| statement | in the paper | in the code | form | checks | measured / bound | hardest case | verdict |",
        "|---|---|---|---|---:|---:|---|---|",
    ]
    for row in rows:
        paper, code = WHERE.get(row["theorem"], SINGLE if "single" in row["theorem"] else LOCAL)
        form = "corrected" if row["corrected"] else "as printed"
        verdict = word if row["holds"] else "**VIOLATED**"
        lines.append(
            f"| `{row['theorem']}` | {paper} | `{code}` | {form} | {row['checks']} | {row['worst_ratio']:.3f} "
            f"({row['method']}) | {row['family']}; {row['setting']} | {verdict} |"
        )
    return "\n".join(lines)
