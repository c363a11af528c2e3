"""High-probability bounds of a sketch: the third condition of an (alpha, beta, delta)-coordinate-wise embedding.

Two kinds of statement, for a failure probability delta:

* columns:  max_{i != j} |<R_i, R_j>| <= t        (lemmas ``*_ip``)
* vectors:  |gᵀRᵀR h - gᵀh| <= t |g| |h|          (lemmas ``*_inf``; the paper's beta is t·sqrt(b))

The paper prints them up to a constant inside the logarithm or in front of it ("<= Θ(delta)"). ``paper`` is the printed
threshold with constant one; ``proved`` carries every constant and fails with probability at most delta, under the
independence named in ``needs`` (proofs in ``docs/theory.md``).  For columns the constant one is not just unproved:
`theory.inner_products` bounds from below how often it fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from desketch.errors import TheoryError
from desketch.theory.embedding import Layout, embedding, layout_of

__all__ = ["Tail", "chebyshev", "columns", "vectors"]


@dataclass(frozen=True)
class Tail:
    """A threshold t exceeded with probability at most delta."""

    family: str
    lemma: str
    paper: float
    proved: float
    needs: str


@dataclass(frozen=True)
class _Case:
    at: Layout
    delta: float

    @property
    def d(self) -> int:
        return self.at.d

    @property
    def b(self) -> int:
        return self.at.b

    @property
    def pairs(self) -> float:
        """Logarithm of (two signs x the number of pairs of columns / delta): what a union bound costs."""
        return math.log(max(self.d * (self.d - 1), 1) / self.delta)


_INDEPENDENT = "independent entries"
_SIGNS = "independent column signs"
_ROWS = "independent rows"


def _printed_columns(z: _Case) -> float:
    return math.sqrt(math.log(z.d / z.delta) / z.b)


def _printed_sparse(z: _Case) -> float:
    return math.sqrt(math.log(z.d / z.delta) / z.at.nnz)


def _log1_5(z: _Case) -> float:
    return math.log(z.d / z.delta) ** 1.5


def _bernstein(x: float, *, draws: int, variance: float, largest: float) -> float:
    """The u with P(|sum of ``draws`` centred draws| > u) <= 2 e^-x, with or without replacement."""
    linear = largest * x / 3
    return linear + math.sqrt(linear**2 + 2 * draws * variance * x)


def _chaos(scale: float, delta: float) -> float:
    """Order-2 Rademacher chaos: |X|_q <= (q-1)|X|_2 <= (q-1)·sqrt(2)·scale, so P(|X| > e·q·sqrt(2)·scale) <= e^-q."""
    return math.e * math.sqrt(2.0) * max(math.log(1 / delta), 2.0) * scale


def _gaussian_columns(z: _Case) -> float:
    return math.sqrt(2 * z.pairs / z.b) + z.pairs / z.b


def _gaussian_vectors(z: _Case) -> float:
    x = math.log(2 / z.delta)
    return 2 * math.sqrt(x / z.b) + 2 * x / z.b


def _ams_columns(z: _Case) -> float:
    return math.sqrt(2 * z.pairs / z.b)


def _ams_vectors(z: _Case) -> float:
    x = math.log(4 / z.delta)
    return max(2 * math.sqrt(x / z.b) + 2 * x / z.b, math.sqrt(6 * x / z.b))


def _srht_columns(z: _Case) -> float:
    """One transform has n - 1 different products up to sign (Serfling); blocks have n - n/B, by Bernstein."""
    n, size = z.at.n, z.at.size
    if size == n:
        return math.sqrt(2 * (1 - (z.b - 1) / n) * math.log(max(2 * (n - 1), 1) / z.delta) / z.b)
    x = math.log(max(2 * (n - n // size), 1) / z.delta)
    u = _bernstein(x, draws=z.b, variance=size / n, largest=1.0)
    return n / (size * z.b) * min(u, z.b, size)


def _srht_vectors(z: _Case) -> float:
    n, size = z.at.n, z.at.size
    largest = min(1.0, 2 * math.log(8 * n / z.delta) / size)  # of <u_r, g><u_r, h> over all rows, but for delta/2
    u = _bernstein(math.log(4 / z.delta), draws=z.b, variance=largest / n, largest=2 * largest)
    return n / z.b * u


def _sparse_columns(z: _Case) -> float:
    return min(math.sqrt(2 * z.pairs * z.at.squares), 1.0)


def _sparse_vectors(z: _Case) -> float:
    return _chaos(_sparse_columns(_Case(z.at, z.delta / 2)), z.delta / 2)


_Threshold = Callable[[_Case], float]
_Rows = dict[str, tuple[str, _Threshold, _Threshold, str]]
# family -> (lemma, paper's threshold, proved threshold, what the proof needs)
_COLUMNS: _Rows = {
    "gaussian": ("lem:gaussian_ip", _printed_columns, _gaussian_columns, _INDEPENDENT),
    "srht": ("lem:srht_ip", _printed_columns, _srht_columns, "nothing more"),
    "ams": ("lem:ams_ip", _printed_columns, _ams_columns, _ROWS),
    "countsketch": ("lem:cs_ip", lambda z: 1.0, lambda z: 1.0, "nothing more"),
    "sparse1": ("lem:sparse_ip", _printed_sparse, _sparse_columns, _INDEPENDENT),
    "sparse2": ("lem:sparse_ip", _printed_sparse, _sparse_columns, _INDEPENDENT),
    "uniform": ("lem:uniform_inf", lambda z: 0.0, lambda z: 0.0, "nothing more"),
}
_VECTORS: _Rows = {
    "gaussian": ("lem:gaussian_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _gaussian_vectors, _INDEPENDENT),
    "srht": ("lem:srht_ams_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _srht_vectors, _SIGNS),
    "ams": ("lem:srht_ams_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _ams_vectors, _INDEPENDENT),
    "countsketch": ("lem:cs_inf", lambda z: math.log(1 / z.delta), lambda z: _chaos(1.0, z.delta), _SIGNS),
    "sparse1": ("lem:sparse_inf", lambda z: _log1_5(z) / math.sqrt(z.at.nnz), _sparse_vectors, _INDEPENDENT),
    "sparse2": ("lem:sparse_inf", lambda z: _log1_5(z) / math.sqrt(z.at.nnz), _sparse_vectors, _INDEPENDENT),
    "uniform": ("lem:uniform_inf", lambda z: 1 + z.d / z.b, lambda z: max(z.d / z.b - 1, 1.0), "nothing: certain"),
}


def columns(family: str, *, d: int, b: int, delta: float, **options: int | str | None) -> Tail:
    """max_{i != j} |<R_i, R_j>| over the columns of R (lemmas ``*_ip``); ``options`` as in `embedding`."""
    return _tail(_COLUMNS, family, _case(family, d, b, delta, options))


def vectors(family: str, *, d: int, b: int, delta: float, **options: int | str | None) -> Tail:
    """|gᵀRᵀR h - gᵀh| / (|g| |h|) for fixed g and h (lemmas ``*_inf``); ``options`` as in `embedding`."""
    return _tail(_VECTORS, family, _case(family, d, b, delta, options))


def chebyshev(family: str, *, d: int, b: int, delta: float, **options: int | str | None) -> Tail:
    """The same by Chebyshev, for every family: t = sqrt(a/(b·delta)); ``lem:cs_inf_2`` prints a = 1."""
    _case(family, d, b, delta, options)
    a = embedding(family, d=d, b=b, **options).a
    return Tail(family, "lem:cs_inf_2", 1 / math.sqrt(b * delta), math.sqrt(a / (b * delta)), "the moments only")


def _case(family: str, d: int, b: int, delta: float, options: dict[str, int | str | None]) -> _Case:
    at = layout_of(family, d=d, b=b, **options)
    if not 0 < delta < 1:
        raise TheoryError(f"delta is a probability strictly between 0 and 1, got {delta}")
    return _Case(at, delta)


def _tail(table: _Rows, family: str, z: _Case) -> Tail:
    lemma, paper, proved, needs = table[family]
    return Tail(family, lemma, paper(z), proved(z), needs)
