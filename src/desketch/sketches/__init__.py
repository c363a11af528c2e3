"""Random linear sketches R with E[RᵀR] = I: `draw` one by family name, then `sketch` and `desketch`."""

from __future__ import annotations

from typing import Any

from desketch.errors import SketchError
from desketch.keys import Key
from desketch.sketches.base import Sketch
from desketch.sketches.reference import REFERENCE

__all__ = ["FAMILIES", "Sketch", "draw"]

FAMILIES: tuple[str, ...] = ("gaussian", "srht", "ams", "countsketch", "sparse1", "sparse2", "uniform")


def draw(family: str, *, d: int, b: int, key: Key, **options: Any) -> Sketch:
    """Draw the operator R of the given family: a pure function of (family, d, b, options, key)."""
    if family not in REFERENCE:
        raise SketchError(f"unknown sketch family {family!r}; choose one of {', '.join(FAMILIES)}")
    return REFERENCE[family](d=d, b=b, key=key, **options)
