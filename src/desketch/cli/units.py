"""Quantities as people write them on a command line: 1e6, 5Mbit, 50ms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from desketch.errors import InputError

__all__ = ["bits_per_second", "count", "seconds"]

_RATES = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_QUANTITY = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)(?:/s|ps)?\s*", re.IGNORECASE)


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
    if match is None or match[2].lower().removesuffix("ps") not in units:
        raise InputError(f"got {text!r}, expected {expected}")
    try:
        return float(match[1]) * units[match[2].lower().removesuffix("ps")]
    except ValueError:
        raise InputError(f"got {text!r}, expected {expected}") from None
