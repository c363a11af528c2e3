"""Sizes as people say them."""

from __future__ import annotations

__all__ = ["human_bytes"]


def human_bytes(count: float) -> str:
    """Bytes with decimal prefixes, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
