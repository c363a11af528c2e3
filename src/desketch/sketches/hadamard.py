"""SRHT (paper, Definition "Subsampled randomized Hadamard/Fourier transform"): sqrt(n/b) S H D, for any d.

A vector of d numbers is padded with zeros to n; R is the first d columns of sqrt(n/b) S H D.  All entries of H are
±1/sqrt(n), so those of R are ±1/sqrt(b), whatever the padding.

*Alpha, one transform, n = 2^k >= d.*  (RᵀR)_ii = 1.  For i != j, (RᵀR)_ij = σ_i σ_j (1/b) Σ_{r in S} (-1)^<r, i^j>;
the n terms of the full sum are ±1 and add to 0, so b of them sampled without replacement have variance b (n - b)/(n -
1).  Signs make different entries of a row uncorrelated.  Hence E|RᵀR g|² = |g|² (1 + (d - 1)(n - b)/(b (n - 1))) for
every g, which is d/b - 1 if d = n.

*Alpha, ``block=B`` < d.*  H is block-diagonal, n = B ceil(d/B), entries ±1/sqrt(B).  Then sqrt(n) S U with U
orthogonal: E|RᵀR g|² = (n/b)² E|S U g|² = (n/b)|g|² for a g inside a block without padding, and dropping the padded
coordinates only lowers it in the last block.  A full block exists, so alpha = n/b - 1 exactly.

*Row order.*  Row r = lo * count + hi of the sample stands for Hadamard row hi * segment + lo, with segments of
``segment`` numbers and count = n / segment.  Rows are exchangeable, so this names the same distribution; in this
order the kernel walks its scratch of ``segment = O(b)`` numbers forwards, and never needs n.

*``transform="fourier"``.*  H is the discrete Hartley transform, H[r, i] = cas(2π r i/d)/sqrt(d) with cas = cos + sin:
the real, symmetric, orthonormal relative of the Fourier transform.  It exists for every d, so n = d and nothing is
padded; its entries are at most sqrt(2/d).  S H D sqrt(d/b) = R has R Rᵀ = (d/b) I, hence (RᵀR)² = (d/b) RᵀR and
E|RᵀR g|² = (d/b)|g|² for every g: alpha = d/b - 1 exactly, the formula above at n = d.  (Any orthonormal H would do for
alpha; ``theory/embedding.py`` has the constant a, which needs the Hartley transform.)  An FFT rounds differently on
different platforms, so replicas of one run must share a platform: it is never a default.

*Inner products.*  Inside a transform |<R_i, R_j>| depends on i ^ j alone, and between transforms it is 0: a column or
two hold the products of all pairs (`largest_inner_product`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from desketch.errors import SketchError
from desketch.keys import Key
from desketch.sketches.base import Family, Sketch, integer
from desketch.sketches.hashing import signs, subset

if TYPE_CHECKING:
    from desketch.sketches.reference import LinearMap

__all__ = ["Srht", "largest_inner_product"]

MIN_SEGMENT = 1 << 13
TRANSFORMS = ("hadamard", "fourier")


def power_of_two(x: int) -> int:
    """The least power of two that is at least x."""
    return 1 << (x - 1).bit_length()


@final
@dataclass(frozen=True, kw_only=True)
class Srht(Family):
    """b sampled rows of a randomly signed Hadamard transform, of many of ``block`` numbers, or of a Hartley one."""

    name: ClassVar[str] = "srht"
    block: int | None = None
    transform: str = "hadamard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transform not in TRANSFORMS:
            raise SketchError(f"transform must be one of {', '.join(TRANSFORMS)}, got {self.transform!r}")
        if self.block is None:
            return
        if self.transform != "hadamard":
            raise SketchError(
                f"block={self.block!r} splits Hadamard transforms only; leave it out with {self.transform}"
            )
        block = integer("block", self.block)
        if block < 1 or block & (block - 1):
            raise SketchError(f"block must be a power of two, got {block}; try {power_of_two(max(block, 1))}")
        object.__setattr__(self, "block", block if block < self.d else None)

    @property
    def size(self) -> int:
        """Numbers in one transform; only Hadamard's needs a power of two."""
        if self.transform == "fourier":
            return self.d
        return self.block or power_of_two(self.d)

    @property
    def segment(self) -> int:
        """Numbers transformed at a time: the whole transform, or a segment of at least b."""
        return self.size if self.block else min(self.size, max(MIN_SEGMENT, power_of_two(self.b)))

    @property
    def n(self) -> int:
        """Padded length."""
        return self.size * -(-self.d // self.size)

    @property
    def scale(self) -> float:
        """The size of the entries (with ``fourier``: their root mean square)."""
        return math.sqrt(self.n / self.size / self.b)

    @property
    def alpha(self) -> float:
        """(d - 1)(n - b)/(b (n - 1)) for one transform, n/b - 1 for blocks."""
        if self.block:
            return self.n / self.b - 1
        return (self.d - 1) * (self.n - self.b) / (self.b * max(self.n - 1, 1))

    @property
    def alpha_paper(self) -> float:
        """2d/b."""
        return 2 * self.d / self.b

    def reference(self, key: Key) -> LinearMap:
        """Signs, transforms, sampled rows."""
        from desketch.sketches.reference import Hadamard, Hartley

        rows = subset(key, self.n, self.b)
        if self.transform == "fourier":
            return Hartley(self.d, self.scale, rows, signs(key, self.d))
        return Hadamard(self.d, self.size, self.segment, self.scale, rows, signs(key, self.d))

    def plan(self, key: Key) -> Any:
        """Draw R as a compiled operator; a Hartley transform has none, the FFT library is the fast path."""
        return super().plan(key) if self.transform == "hadamard" else None

    def sizes(self) -> dict[str, float]:
        """The lengths of a transform and of a segment, and the scale."""
        return {"size": self.size, "segment": self.segment, "scale": self.scale}

    def details(self) -> str:
        """The block, or the transform, if not the default."""
        if self.transform != "hadamard":
            return f"transform={self.transform}"
        return f"block={self.block}" if self.block else ""


def largest_inner_product(R: Sketch) -> float:
    """max_{i != j} |<R_i, R_j>| over the columns of a drawn SRHT, from two columns per transform, in O(n log n).

    The first column of a transform meets every i ^ j below its number r of true coordinates; column n_r/2, with n_r the
    least power of two that is at least r, meets the rest.
    """
    if not isinstance(R.distribution, Srht):
        raise SketchError(f"the columns of {R.family} are not those of a Hadamard matrix; draw srht")
    size = R.distribution.size
    last = (R.d - 1) // size * size
    probes = np.zeros((2, R.d))
    probes[0, ::size] = 1  # products between transforms vanish, so one vector asks all of them
    probes[1, last + power_of_two(R.d - last) // 2] = 1
    products = np.abs(R.desketch(R.sketch(probes)))
    products[probes == 1] = 0  # the norms
    return float(products.max())
