"""The list of deliberate breaks: one TOML file per room of the package, read and checked.

A break is a file of `desketch`, an exact piece of it that occurs once, what to put in its place, and the tests that
must notice.  ``survives`` is the reason why none can; it is left out where one does.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "desketch"


class BreakError(Exception):
    """An entry of the list that no longer says anything."""


@dataclass(frozen=True, kw_only=True)
class Break:
    """One deliberate mistake."""

    room: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def applied(self, source: str) -> str:
        """The broken source; an entry that does not fit it any more is an error."""
        found = source.count(self.old)
        if found != 1:
            raise BreakError(
                f"{self.room}.toml, {self.name!r}: its old text occurs {found} times in {self.file}, expected once; "
                "the code has moved on, so must the entry"
            )
        broken = source.replace(self.old, self.new)
        compile(broken, self.file, "exec")  # a syntax error would be noticed by everything
        return broken


def breaks() -> list[Break]:
    """The whole list, in the order of its files."""
    listed = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["break"]:
            listed.append(Break(room=path.stem, **{**entry, "tests": tuple(entry["tests"])}))
    return listed
