"""Values as JSON can say them: NaN and the infinities, which Python writes bare and others cannot read, are null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["strict"]


def strict(values: Any) -> Any:
    """The same values with None for every number that is not finite."""
    if isinstance(values, Mapping):
        return {name: strict(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [strict(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
