"""Flower (flwr 1.41): SketchStrategy for the ServerApp, sketch_mod for a ClientApp, and an app that needs neither.

Names are imported when used: a ClientApp starts a process for every message, and torch alone takes seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desketch.integrations.flower.mod import SketchMod, sketch_mod
    from desketch.integrations.flower.strategy import SketchStrategy

__all__ = ["SketchMod", "SketchStrategy", "sketch_mod"]

_EXPORTS = {
    "SketchMod": "desketch.integrations.flower.mod",
    "SketchStrategy": "desketch.integrations.flower.strategy",
    "sketch_mod": "desketch.integrations.flower.mod",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'desketch.integrations.flower' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
