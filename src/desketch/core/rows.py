"""``metrics.jsonl``: one sealed JSON object a line, so that a bad line costs itself and no other.

A line that a kill cut off is the last one and no damage: its round is not finished, or is computed again.  A number
that is not finite is null: JSON has no word for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desketch.core.files import append_durably, intact, sealed_json, write_durably
from desketch.core.strict import strict

__all__ = ["Rows", "append_row", "read_rows", "write_rows"]

_ROW = re.compile(rb'\{"round": .*?"sha256": "[0-9a-f]{64}"\}')


@dataclass(frozen=True)
class Rows:
    """The good rows in order of rounds, and the numbers of the lines that hold none."""

    rows: tuple[dict[str, Any], ...]
    damaged: tuple[int, ...] = ()

    def report(self, path: Path) -> str:
        """One sentence about the damage, or nothing."""
        if not self.damaged:
            return ""
        lines = f"line{'s' if self.damaged[1:] else ''} {', '.join(map(str, self.damaged))}"
        return f"{path}: {lines} cannot be read and left out; the other {len(self.rows)} rows are good"


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a finished round; it is on the disk when this returns."""
    append_durably(path, sealed_json(strict(row)))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by these rows."""
    write_durably(path, b"".join(sealed_json(strict(row)) for row in rows))


def read_rows(path: Path) -> Rows:
    """Read what is good in a file that may be damaged, torn or missing; of a round that is there twice, the later.

    Files without seals, by hand or of earlier versions, are taken as they are; where one line has a seal, all must.
    """
    data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")
    sealed = b'"sha256": "' in data
    rows: dict[int, dict[str, Any]] = {}
    damaged = []
    for number, line in enumerate(lines, start=1):
        found = _rows(line, sealed)
        rows |= {row["round"]: row for row in found}
        if not found and line and number < len(lines):  # the last line has no end: it was cut off
            damaged.append(number)
    return Rows(tuple(row for _, row in sorted(rows.items())), tuple(damaged))


def _rows(line: bytes, sealed: bool) -> list[dict[str, Any]]:
    """The row of a line; where a newline was damaged, two of them."""
    if not sealed:
        return _parsed(line)
    whole = [line] if intact(line) else [part for part in _ROW.findall(line) if intact(part)]
    return [row for part in whole for row in _parsed(part)]


def _parsed(line: bytes) -> list[dict[str, Any]]:
    try:
        row = json.loads(line)
    except ValueError:
        return []
    if not isinstance(row, dict) or not isinstance(row.get("round"), int):
        return []
    row.pop("sha256", None)
    return [row]
