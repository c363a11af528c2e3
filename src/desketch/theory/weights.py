"""Which weights D make the noise of a weighted sketch R D⁻¹, D Rᵀ least.

For a mixing family, with p = E<R_i, R_j>² (about 1/b), g the vector sent and H the curvature where it is used,

    E[(D RᵀR D⁻¹ g)ᵀ H (D RᵀR D⁻¹ g)] = (1+p) gᵀHg - 2p Σ_i H_ii g_i² + p |D⁻¹g|² tr(D²H),

so all that D decides is the noise |D⁻¹g|² tr(D²H).  With one weight D_l a tensor, |g_l| its part of g and h_l the trace
of its block of H, Cauchy-Schwarz gives

    (Σ_l |g_l|²/D_l²)(Σ_l D_l² h_l)  >=  (Σ_l |g_l| √h_l)²,     equality iff D_l² is proportional to |g_l|/√h_l.

``docs/theory.md`` derives from it D = 1 for updates of SGD and D = v^(-1/4) for those of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from desketch.errors import TheoryError
from desketch.theory.embedding import Embedding

__all__ = [
    "adam_weights",
    "best_weights",
    "least_noise",
    "noise",
    "normalised",
    "weighted_alpha",
    "weighted_alpha_curved",
    "weighted_energy",
]

_RANGE = 1e-6  # second moments below this part of the largest count as this part: D then spans a factor of 32
_CORNER = 0.5  # what the Fourier transform adds beside the trace


def noise(norms: Sequence[float], curvatures: Sequence[float], weights: Sequence[float]) -> float:
    """|D⁻¹g|² tr(D²H) from the norms |g_l| and the traces h_l of the tensors."""
    inverse = math.fsum((g / D) ** 2 for g, D in zip(norms, weights, strict=True))
    return inverse * math.fsum(D * D * h for D, h in zip(weights, curvatures, strict=True))


def least_noise(norms: Sequence[float], curvatures: Sequence[float]) -> float:
    """(Σ_l |g_l| √h_l)²: what no weights per tensor can undercut."""
    return math.fsum(g * math.sqrt(h) for g, h in zip(norms, curvatures, strict=True)) ** 2


def best_weights(norms: Sequence[float], curvatures: Sequence[float]) -> list[float]:
    """D_l = sqrt(|g_l|/√h_l), the weights that attain `least_noise`; their common scale does not matter."""
    for name, values in (("norm", norms), ("curvature", curvatures)):
        if any(not (math.isfinite(value) and value > 0) for value in values):
            raise TheoryError(f"the best weights need a positive finite {name} for every tensor, got {list(values)}")
    return [math.sqrt(g / math.sqrt(h)) for g, h in zip(norms, curvatures, strict=True)]


def adam_weights(moments: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """D_l = v_l^(-1/4), rms 1 over the coordinates, from the mean second moment v_l of every tensor."""
    top = max(moments, default=0.0)
    if any(not (math.isfinite(v) and v >= 0) for v in moments):
        raise TheoryError(f"second moments are finite and not negative, got {list(moments)[:8]}")
    if top == 0:
        return [1.0] * len(moments)  # before the first gradient nothing is known
    return normalised([max(v, _RANGE * top) ** -0.25 for v in moments], sizes)


def normalised(weights: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """The weights times what makes the mean of D² over all coordinates 1."""
    mean = math.fsum(D * D * n for D, n in zip(weights, sizes, strict=True)) / sum(sizes)
    return [D / math.sqrt(mean) for D in weights]


def weighted_energy(moments: Embedding, *, energy: float, inverse: float, trace: float, largest: float) -> float:
    """E|D RᵀR D⁻¹ g|² from |g|², |D⁻¹g|², tr(D²) and max D².

    Exact where all pairs of columns are alike (srht, ams, gaussian, uniform, textbook hashing); an upper bound for
    blocks, whose missing terms are not negative, and for the Fourier transform.
    """
    p = moments.column_ip
    if moments.family == "uniform":
        return moments.d / moments.b * energy
    if moments.family == "gaussian":
        return (1 + p) * energy + p * trace * inverse
    if moments.share < 0:
        return (1 - p * _CORNER) * energy + p * (trace + _CORNER * largest) * inverse
    return (1 - p * moments.share) * energy + p * trace * inverse


def weighted_alpha(moments: Embedding, *, trace: float, smallest: float, largest: float) -> float:
    """The supremum over g of E|D RᵀR D⁻¹ g|²/|g|² - 1, attained where D² is ``smallest``; exact as `weighted_energy`.

    D = 1 gives the alpha of the family.
    """
    return weighted_energy(moments, energy=1.0, inverse=1 / smallest, trace=trace, largest=largest) - 1


def weighted_alpha_curved(
    moments: Embedding, trace_ratio: float, *, trace: float, smallest: float, largest: float
) -> float:
    """Alpha with E[(D RᵀR D⁻¹ g)ᵀH(D RᵀR D⁻¹ g)] <= (1 + alpha) λ_max |g|²; ``trace_ratio`` is tr(D²H)/λ_max(H)."""
    worst = weighted_alpha(moments, trace=trace, smallest=smallest, largest=largest)
    if not 0 < trace_ratio <= trace * (1 + 1e-9):
        raise TheoryError(f"tr(D²H)/λ_max lies between 0 and tr(D²) = {trace:g}, got {trace_ratio}; check the estimate")
    if moments.family == "uniform":
        return worst
    lift = _CORNER * largest / smallest if moments.share < 0 else 0.0
    return min(worst, moments.column_ip * (trace_ratio / smallest + 2.0 - max(moments.share, 0.0) + lift))
