"""desketch: federated and distributed training in which every message is a small linear sketch of the update.

Names are exported lazily, so that ``import desketch`` costs milliseconds and imports neither torch nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desketch.api import Client, Run, federate, join, serve
    from desketch.errors import DesketchError
    from desketch.keys import Key
    from desketch.privacy.settings import PerStep, SketchClip
    from desketch.sketches import FAMILIES, Sketch, draw
    from desketch.wire import Wire

__version__ = "0.1.0"

_EXPORTS = {
    "Client": "desketch.api",
    "DesketchError": "desketch.errors",
    "FAMILIES": "desketch.sketches",
    "Key": "desketch.keys",
    "PerStep": "desketch.privacy.settings",
    "Run": "desketch.api",
    "Sketch": "desketch.sketches",
    "SketchClip": "desketch.privacy.settings",
    "Wire": "desketch.wire",
    "draw": "desketch.sketches",
    "federate": "desketch.api",
    "join": "desketch.api",
    "serve": "desketch.api",
}

__all__ = [
    "FAMILIES",
    "Client",
    "DesketchError",
    "Key",
    "PerStep",
    "Run",
    "Sketch",
    "SketchClip",
    "Wire",
    "__version__",
    "draw",
    "federate",
    "join",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'desketch' has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
