"""JSON objects that carry the SHA-256 of their own content, so that damage is noticed and never read as other facts.

The digest is over the canonical form (sorted names, no spaces): a file may be indented, moved and re-indented.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desketch.errors import RunError

__all__ = ["SEAL", "read_sealed", "seal", "sealed_text"]

SEAL = "sha256"


def seal(data: Mapping[str, Any]) -> str:
    """The digest of everything but the digest."""
    rest = {name: value for name, value in data.items() if name != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sealed_text(data: Mapping[str, Any]) -> str:
    """The object with its digest, as a file for people and programs."""
    plain = json.loads(json.dumps(data))  # what a reader will see: string names, lists for tuples
    return json.dumps({**plain, SEAL: seal(plain)}, indent=2) + "\n"


def read_sealed(path: Path, *, advice: str) -> dict[str, Any]:
    """Read what `sealed_text` made; a file that is missing, cut or changed is one error, which ends with ``advice``."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} is missing; {advice}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); {advice}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: it is not JSON ({error}); {advice}") from None
    if not isinstance(data, dict) or data.get(SEAL) != seal(data):
        raise RunError(f"{path} is damaged: its content does not match its SHA-256; {advice}")
    return {name: value for name, value in data.items() if name != SEAL}
