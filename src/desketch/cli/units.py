"""Quantities as people write them on a command line: 1e6, 5Mbit, 50ms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from desketch.errors import InputError

__all__ = ["bits_per_second", "count", "seconds"]

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "g": 1e9, "G": 1e9}
_RATES = {prefix + unit: size for prefix, size in _PREFIXES.items() for unit in ("bit", "bps")}  # never B: bytes
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_QUANTITY = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)(?:/s)?\s*")


def bits_per_second(text: str) -> float:
    """``1Mbit`` -> 1e6; a unit is needed, so that bytes and bits are not confused."""
    return _parse(text, _RATES, "a link speed such as 500kbit, 1Mbit or 2.5Gbit")


def seconds(text: str) -> float:
    """``50ms`` -> 0.05; a bare number is seconds."""
    return _parse(text, _TIMES, "a duration such as 50ms or 0.2s")


def count(text: str) -> int:
    """``1e6`` -> 1000000."""
    try:
        number = float(text)
        if number != int(number) or number < 1:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"got {text!r}, expected a whole number such as 250000 or 1e6") from None
    return int(number)


def _parse(text: str, units: Mapping[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return float(match[1]) * units[match[2]]
    except (KeyError, ValueError):
        raise InputError(f"got {text!r}, expected {expected}") from None
