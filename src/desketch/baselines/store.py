"""Store: finished trials in one JSON file, written atomically after each, so that a rerun continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desketch.baselines.trial import Trial
from desketch.core.files import write_durably
from desketch.errors import RunError

__all__ = ["TrialStore"]


class TrialStore:
    """Trials by what determines them: ``put`` writes, ``get`` answers from an earlier run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, dict[str, Any]] = {}
        if path.exists():
            try:
                self._rows = {row["id"]: row for row in json.loads(path.read_text())["trials"]}
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(
                    f"{path} is not a file of trials ({error}); move it away or choose another --out"
                ) from None

    def get(self, **what: Any) -> Trial | None:
        """The trial that ``what`` determines, if it was stored."""
        row = self._rows.get(_identity(what))
        return Trial.from_row(row) if row else None

    def put(self, trial: Trial, **what: Any) -> None:
        """Add a trial and write the file."""
        identity = _identity(what)
        self._rows[identity] = {"id": identity, **trial.row()}
        write_durably(self.path, json.dumps({"trials": list(self._rows.values())}))


def _identity(what: Mapping[str, Any]) -> str:
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in what.items()}
    return json.dumps(plain, sort_keys=True)
