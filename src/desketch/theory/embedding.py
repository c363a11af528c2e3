"""Moments of a sketch: the constants a and alpha of every family, exact and as printed in the paper.

A family is an *a-coordinate-wise embedding* (Definition ``def:cord_emb``) when, for all g and h,

    E[gᵀRᵀR h] = gᵀh,        E[(gᵀRᵀR h)²] <= (gᵀh)² + (a/b) |g|² |h|²,

and ``alpha`` bounds the second moment of a de-sketched vector: E|RᵀR g|² <= (1 + alpha)|g|² (Theorem ``thm:enc_dec``).
All families but one have the same pairwise structure: with p = E<R_i, R_j>² for two columns,

    E[(gᵀRᵀR h)²] - (gᵀh)² = p · sum_{i<j} (g_i h_j + g_j h_i)²        (gaussian: the sum also has the terms i = j)

which gives the exact constants below; ``docs/theory.md`` has the two-line derivations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from desketch.errors import TheoryError

__all__ = ["FAMILIES", "Embedding", "alpha_lower_bound", "embedding"]


@dataclass(frozen=True)
class Embedding:
    """The moment constants of one family at one size.

    ``a`` and ``alpha`` are exact suprema; ``a_paper`` and ``alpha_paper`` are the paper's; ``lemma`` is where it states
    them. ``column_ip`` is p = E<R_i, R_j>².
    """

    family: str
    d: int
    b: int
    a: float
    alpha: float
    a_paper: float
    column_ip: float
    lemma: str
    curve_offset: float = 1.0

    @property
    def alpha_paper(self) -> float:
        """The paper's alpha = a·d/b (Theorem ``thm:enc_dec``, Table ``tab:sketch_main``)."""
        return self.a_paper * self.d / self.b

    def alpha_curved(self, trace_ratio: float) -> float:
        """The alpha that matters when the curvature is not flat: E[(RᵀRg)ᵀH(RᵀRg)] <= (1 + alpha_curved) λ_max |g|².

        Here ``trace_ratio`` = tr(H)/λ_max(H), between 1 and d. For the families that mix coordinates it replaces d:

            E[RᵀR H RᵀR] = H + p (H + tr(H) I - 2 diag H)  <=  λ_max (1 + p (1 + trace_ratio)) I,

        never more than ``alpha``. Uniform sampling does not mix: its constant stays d/b - 1 whatever the spectrum.
        The Fourier transform's pairs are not all alike: it has 5/2 in place of the 1 (``curve_offset``).
        """
        if not 1.0 <= trace_ratio <= self.d:
            raise TheoryError(f"tr(H)/λ_max lies between 1 and d = {self.d}, got {trace_ratio}; check the estimate")
        if self.family == "uniform":
            return self.alpha
        return min(self.alpha, self.column_ip * (self.curve_offset + trace_ratio))


def _gaussian(d: int, b: int) -> tuple[float, float, float]:
    return 2.0, (d + 1) / b, 1 / b


def _pairwise(d: int, b: int) -> tuple[float, float, float]:
    return 2.0 * (1 - 1 / d), (d - 1) / b, 1 / b


def _srht(d: int, b: int) -> tuple[float, float, float]:
    n = 1 << (d - 1).bit_length()  # the Hadamard matrix needs a power of two; rows are drawn without replacement
    thin = (n - b) / (n - 1) if n > 1 else 0.0
    return 2.0 * (1 - 1 / d) * thin, (d - 1) * thin / b, thin / b


def _fourier(d: int, b: int) -> tuple[float, float, float]:
    """The discrete Hartley transform: no padding; a attained at (e_i + e_{i+d/2})/sqrt(2), or spread over odd d."""
    thin = (d - b) / (d - 1) if d > 1 else 0.0
    small = 2.0 * (1 - 1 / d) if d < 6 else 2.0  # no orbit of four below 6
    a = 2.0 - 6.0 / (2 * d + 1) if d % 2 else small
    return a * thin, d / b - 1, thin / b


def _uniform(d: int, b: int) -> tuple[float, float, float]:
    return float(d - b), d / b - 1, 0.0


# family -> (exact a, exact alpha, p) as functions of (d, b); the paper's a; its lemma
_Moments = Callable[[int, int], tuple[float, float, float]]
_TABLE: dict[str, tuple[_Moments, float | None, str]] = {
    "gaussian": (_gaussian, 3.0, "lem:var_gaussian"),
    "srht": (_srht, 2.0, "lem:var_srht_ams"),
    "ams": (_pairwise, 2.0, "lem:var_srht_ams"),
    "countsketch": (_pairwise, 3.0, "lem:var_count_sketch"),
    "sparse1": (_pairwise, 2.0, "lem:var_sparse_embedding"),
    "sparse2": (_pairwise, 2.0, "lem:var_sparse_embedding"),
    "uniform": (_uniform, None, "lem:var_uniform_sample"),  # None: the lemma's a is d itself
}

FAMILIES: tuple[str, ...] = tuple(_TABLE)


def embedding(family: str, *, d: int, b: int, transform: str = "hadamard") -> Embedding:
    """The moment constants of ``family`` for R in R^{b x d}; ``transform`` is the option of ``srht``."""
    if family not in _TABLE:
        raise TheoryError(f"unknown sketch family {family!r}; choose one of {', '.join(FAMILIES)}")
    _check_size(d, b)
    moments, a_paper, lemma = _TABLE[family]
    if transform != "hadamard":
        if (family, transform) != ("srht", "fourier"):
            raise TheoryError(f"transform is hadamard, or fourier for srht, got {transform!r} for {family}")
        return Embedding(family, d, b, *_fourier(d, b)[:2], 2.0, _fourier(d, b)[2], lemma, curve_offset=2.5)
    a, alpha, p = moments(d, b)
    return Embedding(family, d, b, a, alpha, float(d) if a_paper is None else a_paper, p, lemma)


def alpha_lower_bound(d: int, b: int) -> float:
    """The least alpha any unbiased rank-b RᵀR can have: d/b - 1.

    With M = RᵀR of rank b, tr(M)² <= b |M|_F², hence the mean over the basis of E|M e_i|² is
    E|M|_F²/d >= E[tr M]²/(b d) = d/b. ``srht`` (at d = 2^k) and ``uniform`` attain it.
    """
    _check_size(d, b)
    return d / b - 1


def _check_size(d: int, b: int) -> None:
    if not 1 <= b <= d:
        raise TheoryError(f"a sketch needs 1 <= b <= d, got b={b}, d={d}; lower b to fit")
