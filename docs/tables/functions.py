"""Table of docs/theory.md from benchmarks/results/functions.json (`desketch verify --functions --json ...`)."""

from __future__ import annotations

from typing import Any


def table(rows: list[dict[str, Any]]) -> str:
    """One function a row; where we differ, the printed mark is struck out."""
    names = list(rows[0]["verdicts"])
    lines = ["| function | domain | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for row in rows:
        cells = " | ".join(_cell(row["verdicts"][name]) for name in names)
        lines.append(f"| {_escape(row['function'])} | {_escape(row['domain'])} | {cells} |")
    return "\n".join(lines)


def differences(rows: list[dict[str, Any]]) -> str:
    """The evidence of every verdict that differs: constants on three ever finer and wider grids."""
    lines = ["| function | property | paper | ours | evidence |", "|---|---|---|---|---|"]
    for row in rows:
        for name, verdict in row["verdicts"].items():
            if verdict["paper"] != verdict["ours"]:
                title = _escape(f"{row['function']} {row['domain']}".strip())
                marks = f"{_mark(verdict['paper'])} | {_mark(verdict['ours'])}"
                lines.append(f"| {title} | {name} | {marks} | {_escape(verdict['evidence'])} |")
    return "\n".join(lines)


def _cell(verdict: dict[str, Any]) -> str:
    if verdict["paper"] == verdict["ours"]:
        return _mark(verdict["ours"])
    return f"~~{_mark(verdict['paper'])}~~ **{_mark(verdict['ours'])}**"


def _mark(holds: bool) -> str:
    return "✓" if holds else "✗"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
