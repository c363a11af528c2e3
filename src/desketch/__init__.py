"""desketch: federated and distributed training in which every message is a small linear sketch of the update.

Names are exported lazily, so that ``import desketch`` costs milliseconds and imports neither torch nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desketch.errors import DesketchError
    from desketch.keys import Key
    from desketch.sketches import FAMILIES, Sketch, draw

__version__ = "0.1.0"

_EXPORTS = {
    "DesketchError": "desketch.errors",
    "FAMILIES": "desketch.sketches",
    "Key": "desketch.keys",
    "Sketch": "desketch.sketches",
    "draw": "desketch.sketches",
}

__all__ = ["FAMILIES", "DesketchError", "Key", "Sketch", "__version__", "draw"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'desketch' has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
