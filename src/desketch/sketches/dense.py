"""Dense sketches: Gaussian entries (paper, Definition "Random Gaussian matrix") and AMS signs ("AMS sketch matrix").

Second moments.  For Gaussian rows, E|RᵀR g|² = (1 + (d + 1)/b)|g|² (Wishart).  For AMS, (RᵀR)_ii = 1 and the
off-diagonal entries are uncorrelated by 4-wise independence with variance 1/b, so E|RᵀR g|² = (1 + (d - 1)/b)|g|².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import numpy.typing as npt

from desketch.keys import Key
from desketch.sketches.base import Family
from desketch.sketches.hashing import SAMPLE, signs, stream

if TYPE_CHECKING:
    from desketch.sketches.reference import LinearMap

__all__ = ["Ams", "GaussianFamily", "normals"]

Float32 = npt.NDArray[np.float32]

# Minimax polynomials: (ln(1+t) - t)/t², (sin φ - φ)/φ³ and (cos φ - 1)/φ² in φ², on the ranges used below.
_LOG = (
    -0.5000149011611938,
    0.3331545293331146,
    -0.24898795783519745,
    0.20496486127376556,
    -0.18750451505184174,
    0.11953793466091156,
)
_SIN = (-0.16666582226753235, 0.008329201489686966, -0.0001922443916555494)
_COS = (-0.4999984800815582, 0.041653718799352646, -0.0013567276764661074)
_SQRT_HALF = np.int32(0x3F3504F3)


def _horner(coefficients: tuple[float, ...], x: Float32) -> Float32:
    y = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        y = y * x + np.float32(c)
    return y


def normals(radius: npt.NDArray[np.uint32], angle: npt.NDArray[np.uint32]) -> tuple[Float32, Float32]:
    """Box-Muller in float32 additions, products and square roots alone: two words to two independent N(0, 1).

    With x = (radius/2 + 1/2)/2³¹ and φ uniform in ±π/4 the pair sqrt(-ln x)(cos φ ∓ sin φ), each with its own random
    sign, is (r cos θ, r sin θ) for r² = -2 ln x and θ uniform on the circle.  The logarithm splits off the exponent.
    """
    f = (radius >> np.uint32(1)).astype(np.int32).astype(np.float32) + np.float32(0.5)
    bits = f.view(np.int32) - _SQRT_HALF
    exponent = (np.int32(31) - (bits >> np.int32(23))).astype(np.float32)
    t = ((bits & np.int32(0x7FFFFF)) + _SQRT_HALF).view(np.float32) - np.float32(1)
    r = np.sqrt(exponent * np.float32(math.log(2)) - (t + t * t * _horner(_LOG, t)))
    phi = (angle << np.uint32(2)).view(np.int32).astype(np.float32) * np.float32(math.pi / 2**33)
    square = phi * phi
    sin, cos = phi + phi * square * _horner(_SIN, square), np.float32(1) + square * _horner(_COS, square)
    flip = np.uint32(0x80000000)
    first, second = r * (cos - sin), r * (cos + sin)
    return (
        (first.view(np.uint32) ^ (angle & flip)).view(np.float32),
        (second.view(np.uint32) ^ (angle << np.uint32(1) & flip)).view(np.float32),
    )


@final
@dataclass(frozen=True, kw_only=True)
class GaussianFamily(Family):
    """Independent entries N(0, 1/b)."""

    name: ClassVar[str] = "gaussian"

    @property
    def alpha(self) -> float:
        """(d + 1)/b."""
        return (self.d + 1) / self.b

    @property
    def alpha_paper(self) -> float:
        """3d/b."""
        return 3 * self.d / self.b

    def reference(self, key: Key) -> LinearMap:
        """Row k from the sample stream of table k, 64 columns a group."""
        from desketch.sketches.reference import Rows

        def row(k: int) -> Float32:
            words = key.words(-(-self.d // 64) * 64, stream=stream(k, SAMPLE)).reshape(-1, 2, 2, 16)
            z = np.stack(normals(words[:, :, 0].copy(), words[:, :, 1].copy()), axis=2)
            return z.reshape(-1)[: self.d]

        return Rows(self.d, self.b, 1 / math.sqrt(self.b), lambda i, j: np.stack([row(k) for k in range(i, j)]))

    def sizes(self) -> dict[str, float]:
        """The scale."""
        return {"scale": 1 / math.sqrt(self.b)}


@final
@dataclass(frozen=True, kw_only=True)
class Ams(Family):
    """Rows of ±1/sqrt(b), each 5-wise independent, independent of each other."""

    name: ClassVar[str] = "ams"

    @property
    def alpha(self) -> float:
        """(d - 1)/b."""
        return (self.d - 1) / self.b

    @property
    def alpha_paper(self) -> float:
        """2d/b."""
        return 2 * self.d / self.b

    def reference(self, key: Key) -> LinearMap:
        """Row k is the sign hash of table k."""
        from desketch.sketches.reference import Rows

        def band(first: int, last: int) -> npt.NDArray[np.int8]:
            return np.stack([signs(key, self.d, k) for k in range(first, last)])

        return Rows(self.d, self.b, 1 / math.sqrt(self.b), band)

    def sizes(self) -> dict[str, float]:
        """The scale."""
        return {"scale": 1 / math.sqrt(self.b)}
