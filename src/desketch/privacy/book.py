"""LedgerBook: a run's ledger in its folder, twice, on disk before anything is released, and never less than it was.

::

    charge   in memory, or BudgetError
    write    privacy.json, then privacy.copy.json, each to the disk (file and folder)
    release

So either file alone covers every release.  `resume` takes, for every party and event, the largest count that a file or
the checkpoint knows: counts only ever grow, so the largest is the latest, whichever file is older.  A file that is
missing or does not match its SHA-256 is an error; nothing is guessed from what is left of it.

What no file can notice is a whole folder put back to an earlier day.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from desketch.errors import RunError
from desketch.privacy.record import PrivacyRecord, read_record, write_record

__all__ = ["COPY", "RECORD", "LedgerBook"]

RECORD, COPY = "privacy.json", "privacy.copy.json"


class Charged(Protocol):
    """A ledger that is charged elsewhere."""

    @property
    def record(self) -> PrivacyRecord:
        """All of it, as kept in a file."""

    def load_state_dict(self, state: Any) -> None:
        """Take in what another copy knows; counts never fall."""


class LedgerBook:
    """The two files of one run's ledger."""

    def __init__(self, folder: Path, ledger: Charged) -> None:
        self.folder, self.ledger = folder, ledger

    def start(self) -> None:
        """Begin a ledger; one that has charged anything is never begun again."""
        for path in self._paths:
            if path.exists() and read_record(path).ledger.spent:
                raise RunError(
                    f"{path} holds the ledger of a run that has released something, but the run itself is not here to "
                    "be resumed; keep the ledger and choose another folder, or put the run's other files back"
                )
        self.write()

    def write(self) -> None:
        """Put the ledger on disk; when this returns, what is charged may be released."""
        record = self.ledger.record
        for path in self._paths:
            write_record(path, record)

    def resume(self) -> None:
        """Take in both files."""
        for path in self._paths:
            self.ledger.load_state_dict(_state(path))

    @property
    def _paths(self) -> tuple[Path, Path]:
        return self.folder / RECORD, self.folder / COPY


def _state(path: Path) -> Mapping[str, Any]:
    return read_record(path).ledger.to_dict()
