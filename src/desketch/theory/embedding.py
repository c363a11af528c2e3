"""Moments of a sketch: the constants a and alpha of every family and layout, exact and as printed in the paper.

A family is an *a-coordinate-wise embedding* (Definition ``def:cord_emb``) when, for all g and h,

    E[gᵀRᵀR h] = gᵀh,        E[(gᵀRᵀR h)²] <= (gᵀh)² + (a/b) |g|² |h|²,

and ``alpha`` bounds the second moment of a de-sketched vector: E|RᵀR g|² <= (1 + alpha)|g|² (Theorem ``thm:enc_dec``).
With p_ij = E<R_i, R_j>² for two columns, all families whose columns have norm one satisfy

    E[(gᵀRᵀR h)²] - (gᵀh)² = sum_{i<j} p_ij (g_i h_j + g_j h_i)²        (gaussian: the sum also has the terms i = j).

A layout decides p_ij, so the constants depend on it: hashing blocks of 64 makes collisions inside a block rarer, while
``srht(block=B)`` mixes only B coordinates and samples whole blocks unevenly, which raises a to about 3n/B.
``docs/theory.md`` derives every constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from desketch.errors import TheoryError

__all__ = ["FAMILIES", "Embedding", "Layout", "alpha_lower_bound", "embedding", "layout_of"]

HASH_BLOCK = 64  # coordinates hashed together by the block layout
_DEFAULT_NNZ = 4


@dataclass(frozen=True)
class Embedding:
    """The moment constants of one family at one size and layout.

    ``a`` and ``alpha`` are exact suprema; ``a_paper`` and ``alpha_paper`` are the paper's; ``lemma`` is where it states
    them. ``column_ip`` is p = max E<R_i, R_j>². ``mixed`` is the number of coordinates one transform mixes, and
    ``share`` their part of the padded length: d and 1 unless the layout is made of small transforms.
    """

    family: str
    d: int
    b: int
    a: float
    alpha: float
    a_paper: float
    column_ip: float
    lemma: str
    mixed: int
    share: float

    @property
    def alpha_paper(self) -> float:
        """The paper's alpha = a·d/b (Theorem ``thm:enc_dec``, Table ``tab:sketch_main``)."""
        return self.a_paper * self.d / self.b

    def alpha_curved(self, trace_ratio: float) -> float:
        """The alpha that matters when the curvature is not flat: E[(RᵀRg)ᵀH(RᵀRg)] <= (1 + alpha_curved) λ_max |g|².

        Here ``trace_ratio`` = tr(H)/λ_max(H), between 1 and d. For the families that mix coordinates it replaces d:

            E[RᵀR H RᵀR] = H + p (H + tr(H) I - 2 diag H)  <=  λ_max (1 + p (1 + trace_ratio)) I,

        never more than ``alpha``. A sketch of small transforms sees the trace of one of them at a time, which may be
        all of tr(H) up to ``mixed`` λ_max. Uniform sampling does not mix: its constant stays d/b - 1.
        The Fourier transform has 5/2 in place of the 1.
        """
        if not 1.0 <= trace_ratio <= self.d:
            raise TheoryError(f"tr(H)/λ_max lies between 1 and d = {self.d}, got {trace_ratio}; check the estimate")
        if self.family == "uniform":
            return self.alpha
        return min(self.alpha, self.column_ip * (min(trace_ratio, self.mixed) + 2.0 - self.share))


@dataclass(frozen=True)
class Layout:
    """How the entries of R are laid out: the options of a family, resolved for one d and b.

    ``size`` is the length of one Hadamard transform and ``n`` the padded length (srht), ``nnz`` the entries of a column
    and ``hashed`` the coordinates that share one hash (countsketch, sparse1, sparse2; 1 in the textbook layout).
    """

    family: str
    d: int
    b: int
    size: int
    nnz: int
    hashed: int

    @property
    def n(self) -> int:
        """Padded length: whole transforms."""
        return self.size * -(-self.d // self.size)

    @property
    def last(self) -> int:
        """Coordinates in the last, smallest group of ``hashed``."""
        return (self.d - 1) % self.hashed + 1

    @property
    def squares(self) -> float:
        """Sum over the entries of a column of their fourth powers: 1/nnz, or sum (m_j/b)² for unequal sub-tables."""
        if self.family != "sparse2":
            return 1 / self.nnz
        edges = [j * self.b // self.nnz for j in range(self.nnz + 1)]
        return math.fsum(((edges[j + 1] - edges[j]) / self.b) ** 2 for j in range(self.nnz))


@dataclass(frozen=True)
class _Moments:
    a: float
    alpha: float
    p: float
    mixed: int
    share: float = 1.0


def _gaussian(z: Layout) -> _Moments:
    return _Moments(2.0, (z.d + 1) / z.b, 1 / z.b, z.d)


def _fourier(z: Layout) -> _Moments:
    """The discrete Hartley transform: no padding; a attained at (e_i + e_{i+d/2})/sqrt(2), or spread over odd d."""
    thin = (z.d - z.b) / max(z.d - 1, 1)
    small = 2.0 * (1 - 1 / z.d) if z.d < 6 else 2.0  # no orbit of four below 6
    a = 2.0 - 6.0 / (2 * z.d + 1) if z.d % 2 else small
    # its pairs of columns are not all alike: 5/2 stands where the others have 1 beside the trace
    return _Moments(a * thin, z.d / z.b - 1, thin / z.b, z.d, share=-0.5)


def _ams(z: Layout) -> _Moments:
    return _Moments(2.0 * (1 - 1 / z.d), (z.d - 1) / z.b, 1 / z.b, z.d)


def _hashed(z: Layout) -> _Moments:
    """Inside a group p is ``inside`` <= 1/b, across groups 1/b; a group of s weighs 1 - rho + rho/s, rho = b·inside."""
    inside = (z.nnz - 1) / (z.nnz * max(z.b - 1, 1)) if z.family == "sparse1" else 0.0
    rho = z.b * inside

    def weight(s: int) -> float:
        return 1 - rho + rho / s

    full = (z.d - z.last) // z.hashed
    a = 2 * (1 - 1 / (full / weight(z.hashed) + 1 / weight(z.last)))
    return _Moments(a, (z.d - z.last) / z.b + (z.last - 1) * inside, 1 / z.b, z.d)


def _srht(z: Layout) -> _Moments:
    thin = (z.n - z.b) / (z.b * max(z.n - 1, 1))  # rows are drawn without replacement
    if z.size >= z.d:
        return _Moments(2 * (1 - 1 / z.d) * thin * z.b, (z.d - 1) * thin, thin, z.d)
    parts = z.n / z.size
    a = z.b * thin * (parts * (3 - 2 / z.size) - 1)
    return _Moments(a, z.n / z.b - 1, thin * parts, z.size, 1 / parts)


def _uniform(z: Layout) -> _Moments:
    return _Moments(float(z.d - z.b), z.d / z.b - 1, 0.0, 1)


# family -> (exact constants; the paper's a; its lemma)
_TABLE: dict[str, tuple[Callable[[Layout], _Moments], float | None, str]] = {
    "gaussian": (_gaussian, 3.0, "lem:var_gaussian"),
    "srht": (_srht, 2.0, "lem:var_srht_ams"),
    "ams": (_ams, 2.0, "lem:var_srht_ams"),
    "countsketch": (_hashed, 3.0, "lem:var_count_sketch"),
    "sparse1": (_hashed, 2.0, "lem:var_sparse_embedding"),
    "sparse2": (_hashed, 2.0, "lem:var_sparse_embedding"),
    "uniform": (_uniform, None, "lem:var_uniform_sample"),  # None: the lemma's a is d itself
}
_OPTIONS = {
    "srht": {"block", "transform"},
    "countsketch": {"layout"},
    "sparse1": {"layout", "nnz"},
    "sparse2": {"layout", "nnz"},
}

FAMILIES: tuple[str, ...] = tuple(_TABLE)


def embedding(family: str, *, d: int, b: int, **options: int | str | None) -> Embedding:
    """The moment constants of ``family`` for R in R^{b x d}; ``options`` are those the sketch is drawn with."""
    z = layout_of(family, d=d, b=b, **options)
    moments, a_paper, lemma = _TABLE[family]
    m = _fourier(z) if options.get("transform") == "fourier" else moments(z)
    a_printed = float(d) if a_paper is None else a_paper
    return Embedding(family, d, b, m.a, m.alpha, a_printed, m.p, lemma, m.mixed, m.share)


def layout_of(family: str, *, d: int, b: int, **options: int | str | None) -> Layout:
    """Resolve ``block``, ``layout`` and ``nnz`` as a drawn sketch does, defaults included."""
    if family not in _TABLE:
        raise TheoryError(f"unknown sketch family {family!r}; choose one of {', '.join(FAMILIES)}")
    _check_size(d, b)
    known = _OPTIONS.get(family, set())
    if unknown := set(options) - known:
        allowed = ", ".join(sorted(known)) or "none"
        raise TheoryError(f"{family} has no option {', '.join(sorted(unknown))}; its options: {allowed}")
    if (transform := options.get("transform", "hadamard")) not in ("hadamard", "fourier"):
        raise TheoryError(f"transform is hadamard or fourier, got {transform!r}")
    nnz = 1 if family == "countsketch" else _nnz(options.get("nnz"), b)
    rows = b // nnz if family == "sparse2" else b
    blocked = _layout(options.get("layout", "block")) == "block" and rows >= HASH_BLOCK
    return Layout(family, d, b, _transform(options.get("block"), d), nnz, HASH_BLOCK if blocked else 1)


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


def _nnz(nnz: int | str | None, b: int) -> int:
    if nnz is None:
        return min(_DEFAULT_NNZ, b)
    if not isinstance(nnz, int) or not 1 <= nnz <= b:
        raise TheoryError(f"nnz counts the non-zeros of a column and is at least 1 and at most b={b}, got {nnz!r}")
    return nnz


def _layout(layout: int | str | None) -> str:
    if layout not in ("block", "textbook"):
        raise TheoryError(f"layout is block or textbook, got {layout!r}")
    return str(layout)


def _transform(block: int | str | None, d: int) -> int:
    if block is None or (isinstance(block, int) and block >= d > 0 and block & (block - 1) == 0):
        return 1 << (d - 1).bit_length()
    if not isinstance(block, int) or block < 1 or block & (block - 1):
        raise TheoryError(f"block is the length of a Hadamard transform, a power of two, got {block!r}")
    return block
