"""Random linear sketches R with E[RᵀR] = I: `draw` one by family name, then `sketch` and `desketch`."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

from desketch.errors import SketchError
from desketch.keys import Key
from desketch.sketches.base import Family, Sketch
from desketch.sketches.dense import Ams, GaussianFamily
from desketch.sketches.hadamard import Srht
from desketch.sketches.sampling import Uniform
from desketch.sketches.sparse import CountSketch, Sparse1, Sparse2
from desketch.sketches.weights import Weighted

__all__ = ["FAMILIES", "Family", "Sketch", "Weighted", "draw", "family"]

_REGISTRY: dict[str, type[Family]] = {
    c.name: c for c in (GaussianFamily, Srht, Ams, CountSketch, Sparse1, Sparse2, Uniform)
}

_OPTIONS = {name: tuple(f.name for f in fields(c) if f.name not in ("d", "b")) for name, c in _REGISTRY.items()}

FAMILIES: tuple[str, ...] = tuple(_REGISTRY)


def family(name: str, *, d: int, b: int, **options: Any) -> Family:
    """The distribution itself, not yet drawn: its alpha needs no key."""
    try:
        return _remembered(name, d=d, b=b, **options)
    except TypeError:  # an option that cannot be hashed: let its own check speak
        return _family(name, d=d, b=b, **options)


def _family(name: str, *, d: int, b: int, **options: Any) -> Family:
    if name not in _REGISTRY:
        raise SketchError(f"unknown sketch family {name!r}; choose one of {', '.join(FAMILIES)}")
    known = _OPTIONS[name]
    for option in options:
        if option not in known:
            raise SketchError(f"{name} has no option {option}; its options: {', '.join(known) or 'none'}")
    return _REGISTRY[name](d=d, b=b, **options)


_remembered = lru_cache(maxsize=256, typed=True)(_family)  # a distribution is immutable, and drawn from every round


def draw(name: str, *, d: int, b: int, key: Key, **options: Any) -> Sketch:
    """Draw the operator R of the named family: a pure function of (family, d, b, options, key).

    >>> import numpy as np
    >>> R = draw("srht", d=1_000_000, b=10_000, key=Key(2023).fold_in("round", 1))
    >>> s = R.sketch(np.ones(1_000_000, dtype=np.float32))  # what travels
    >>> s.shape, R.desketch(s).shape, round(R.alpha, 1)  # E[RᵀRg] = g, E|RᵀRg|² = (1 + alpha)|g|²
    ((10000,), (1000000,), 99.0)
    """
    return Sketch(family(name, d=d, b=b, **options), key)
