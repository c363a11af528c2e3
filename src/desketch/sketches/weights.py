"""Weighted: a sketch whose noise lands where it hurts least, R D⁻¹ to sketch and D Rᵀ to de-sketch.

D is diagonal, one public positive number a tensor.  E[D RᵀR D⁻¹ g] = g whatever D is, so the mean does not change; D
only decides how the noise is shared out: coordinate i receives noise of variance about D_i² |D⁻¹g|²/b instead of
|g|²/b.  ``theory/weights.py`` has the moments, and the D that is best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, final

from desketch.errors import SketchError
from desketch.sketches.base import Array, Sketch
from desketch.theory.embedding import Embedding, embedding
from desketch.theory.weights import weighted_alpha, weighted_alpha_curved, weighted_energy

__all__ = ["Weighted"]


@final
@dataclass(frozen=True)
class Weighted:
    """``R`` between D⁻¹ and D; ``weights[l]`` is D on the ``sizes[l]`` coordinates of tensor l, in order."""

    R: Sketch
    weights: tuple[float, ...]
    sizes: tuple[int, ...]

    def __init__(self, R: Sketch, weights: Sequence[float], sizes: Sequence[int]) -> None:
        if len(weights) != len(sizes) or sum(sizes) != R.d:
            raise SketchError(
                f"a weighted sketch needs a weight a tensor and tensors of d = {R.d} numbers in all, got "
                f"{len(weights)} weights for {len(sizes)} tensors of {sum(sizes)}"
            )
        if not all(math.isfinite(D) and D > 0 for D in weights):
            raise SketchError(f"weights must be finite and above 0, got {list(weights)[:8]}; leave them out for D = 1")
        self.__dict__.update(R=R, weights=tuple(map(float, weights)), sizes=tuple(map(int, sizes)))

    def sketch(self, g: Array, *, overwrite: bool = False) -> Array:
        """R D⁻¹ g: ``(..., d) -> (..., b)``; with ``overwrite`` g itself becomes D⁻¹ g, which saves a copy of it."""
        scaled = g if overwrite else _copy(g)
        self._scale(scaled, [1 / D for D in self.weights])
        return self.R.sketch(scaled)

    def desketch(self, s: Array, *, out: Array | None = None) -> Array:
        """D Rᵀ s: ``(..., b) -> (..., d)``; into ``out`` if given."""
        u = self.R.desketch(s, out=out)
        self._scale(u, self.weights)
        return u

    def energy(self, tensors: Sequence[float]) -> float:
        """E|D RᵀR D⁻¹ g|² for a g whose tensors have the squared norms ``tensors``."""
        inverse = math.fsum(g / (D * D) for g, D in zip(tensors, self.weights, strict=True))
        return weighted_energy(
            self._moments, energy=math.fsum(tensors), inverse=inverse, trace=self.trace, largest=max(self.weights) ** 2
        )

    @property
    def trace(self) -> float:
        """tr(D²)."""
        return math.fsum(D * D * n for D, n in zip(self.weights, self.sizes, strict=True))

    @property
    def alpha(self) -> float:
        """The supremum over g of E|D RᵀR D⁻¹ g|²/|g|² - 1, in closed form."""
        return weighted_alpha(self._moments, **self._spread)

    def alpha_curved(self, trace_ratio: float) -> float:
        """The alpha of a curved loss, from tr(D²H)/λ_max(H)."""
        return weighted_alpha_curved(self._moments, trace_ratio, **self._spread)

    @property
    def _spread(self) -> dict[str, float]:
        return {"trace": self.trace, "smallest": min(self.weights) ** 2, "largest": max(self.weights) ** 2}

    @property
    def _moments(self) -> Embedding:
        family = self.R.distribution
        options = {f.name: getattr(family, f.name) for f in fields(family) if f.name not in ("d", "b")}
        return embedding(family.name, d=family.d, b=family.b, **options)

    def _scale(self, x: Any, factors: Sequence[float]) -> None:
        start = 0
        for factor, n in zip(factors, self.sizes, strict=True):
            x[..., start : start + n] *= factor
            start += n


def _copy(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy()
