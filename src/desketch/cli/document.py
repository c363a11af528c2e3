"""How a command answers: a table for people, or exactly one JSON document."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["emit"]


def emit(document: Any, json_to: str | None, show: Callable[[], None]) -> None:
    """``-`` writes the document to stdout and nothing else; a file is written atomically, beside the table."""
    if json_to == "-":
        sys.stdout.write(json.dumps(document) + "\n")
        return
    show()
    if json_to is not None:
        path = Path(json_to)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.partial")
        draft.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(draft, path)
