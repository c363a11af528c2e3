"""How a command answers: a table for people, or exactly one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from desketch.core.files import write_durably
from desketch.core.strict import strict

__all__ = ["emit"]


def emit(
    document: Any, json_to: str | None, show: Callable[[], None], *, also: Sequence[Path] = (), quiet: bool = False
) -> None:
    """``-`` writes the document to stdout and nothing else; a file is written atomically, beside the table.

    The files that were written, ``also`` among them, are named under the table; ``quiet`` prints neither.
    """
    if json_to == "-":
        sys.stdout.write(json.dumps(strict(document)) + "\n")
        return
    if not quiet:
        show()
    if json_to is not None:
        write_durably(Path(json_to), json.dumps(strict(document), indent=1, ensure_ascii=False) + "\n")
    if not quiet and (wrote := [*map(str, also), *([json_to] if json_to else [])]):
        print(f"wrote {' and '.join(wrote)}")
