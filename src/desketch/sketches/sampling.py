"""Uniform sampling (paper, Definition "Uniform sampling matrix"): sqrt(d/b) S D, b coordinates without replacement.

RᵀR is d/b on the sampled coordinates and 0 elsewhere, so E|RᵀR g|² = (d/b)² (b/d)|g|² and alpha = d/b - 1, the least
that any unbiased RᵀR of rank b can have: tr E[RᵀR] = d forces E tr (RᵀR)² >= d²/b.  The paper's lemma would give
d²/b. The sign of a sampled coordinate is indexed by its rank, which has the same law as a sign per coordinate and
costs b bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from desketch.keys import Key
from desketch.sketches.base import Family
from desketch.sketches.hashing import signs, subset

if TYPE_CHECKING:
    from desketch.sketches.reference import LinearMap

__all__ = ["Uniform"]


@final
@dataclass(frozen=True, kw_only=True)
class Uniform(Family):
    """b coordinates sampled without replacement, signed and scaled by sqrt(d/b)."""

    name: ClassVar[str] = "uniform"

    @property
    def alpha(self) -> float:
        """d/b - 1."""
        return self.d / self.b - 1

    @property
    def alpha_paper(self) -> float:
        """d²/b: the paper's lemma bounds the variance by d/b per inner product."""
        return self.d**2 / self.b

    def reference(self, key: Key) -> LinearMap:
        """The sampled coordinates in ascending order, signs by rank."""
        from desketch.sketches.reference import Selection

        return Selection(self.d, math.sqrt(self.d / self.b), subset(key, self.d, self.b), signs(key, self.b))

    def sizes(self) -> dict[str, float]:
        """The scale."""
        return {"scale": math.sqrt(self.d / self.b)}
