"""High-probability bounds of a sketch: the third condition of an (alpha, beta, delta)-coordinate-wise embedding.

Two kinds of statement, for a failure probability delta:

* columns:  max_{i != j} |<R_i, R_j>| <= t        (lemmas ``*_ip``)
* vectors:  |gᵀRᵀR h - gᵀh| <= t |g| |h|          (lemmas ``*_inf``; the paper's beta is t·sqrt(b))

The paper prints them up to a constant inside the logarithm or in front of it ("<= Θ(delta)"). ``paper`` is the printed
threshold with constant one; ``proved`` carries every constant and fails with probability at most delta, under the
independence named in ``needs`` (proofs in ``docs/theory.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from desketch.errors import TheoryError
from desketch.theory.embedding import embedding

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
class _Size:
    d: int
    b: int
    nnz: int
    delta: float

    @property
    def pairs(self) -> float:
        """Logarithm of (two signs x the number of pairs of columns / delta): what a union bound costs."""
        return math.log(max(self.d * (self.d - 1), 1) / self.delta)

    @property
    def hadamard(self) -> int:
        return 1 << (self.d - 1).bit_length()


_INDEPENDENT = "independent entries"
_SIGNS = "independent column signs"
_ROWS = "independent rows"


def _log1_5(z: _Size) -> float:
    return math.log(z.d / z.delta) ** 1.5


def _chaos(scale: float, delta: float) -> float:
    """Order-2 Rademacher chaos: |X|_q <= (q-1)|X|_2 <= (q-1)·sqrt(2)·scale, so P(|X| > e·q·sqrt(2)·scale) <= e^-q."""
    return math.e * math.sqrt(2.0) * max(math.log(1 / delta), 2.0) * scale


def _gaussian_columns(z: _Size) -> float:
    return math.sqrt(2 * z.pairs / z.b) + z.pairs / z.b


def _gaussian_vectors(z: _Size) -> float:
    x = math.log(2 / z.delta)
    return 2 * math.sqrt(x / z.b) + 2 * x / z.b


def _ams_vectors(z: _Size) -> float:
    x = math.log(4 / z.delta)
    return max(2 * math.sqrt(x / z.b) + 2 * x / z.b, math.sqrt(6 * x / z.b))


def _srht_vectors(z: _Size) -> float:
    return 2 * math.log(8 * z.hadamard / z.delta) * math.sqrt(2 * math.log(4 / z.delta) / z.b)


def _sparse_columns(z: _Size) -> float:
    return min(math.sqrt(2 * z.pairs / z.nnz), 1.0)


def _sparse_vectors(z: _Size) -> float:
    return _chaos(_sparse_columns(_Size(z.d, z.b, z.nnz, z.delta / 2)), z.delta / 2)


_Threshold = Callable[[_Size], float]
# family -> (lemma, paper's threshold, proved threshold, what the proof needs)
_COLUMNS: dict[str, tuple[str, _Threshold, _Threshold, str]] = {
    "gaussian": (
        "lem:gaussian_ip",
        lambda z: math.sqrt(math.log(z.d / z.delta) / z.b),
        _gaussian_columns,
        _INDEPENDENT,
    ),
    "srht": (
        "lem:srht_ip",
        lambda z: math.sqrt(math.log(z.d / z.delta) / z.b),
        lambda z: math.sqrt(2 * z.pairs / z.b),
        "nothing more",
    ),
    "ams": (
        "lem:ams_ip",
        lambda z: math.sqrt(math.log(z.d / z.delta) / z.b),
        lambda z: math.sqrt(2 * z.pairs / z.b),
        _ROWS,
    ),
    "countsketch": ("lem:cs_ip", lambda z: 1.0, lambda z: 1.0, "nothing more"),
    "sparse1": ("lem:sparse_ip", lambda z: math.sqrt(math.log(z.d / z.delta) / z.nnz), _sparse_columns, _INDEPENDENT),
    "sparse2": ("lem:sparse_ip", lambda z: math.sqrt(math.log(z.d / z.delta) / z.nnz), _sparse_columns, _INDEPENDENT),
    "uniform": ("lem:uniform_inf", lambda z: 0.0, lambda z: 0.0, "nothing more"),
}
_VECTORS: dict[str, tuple[str, _Threshold, _Threshold, str]] = {
    "gaussian": ("lem:gaussian_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _gaussian_vectors, _INDEPENDENT),
    "srht": ("lem:srht_ams_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _srht_vectors, _SIGNS),
    "ams": ("lem:srht_ams_inf", lambda z: _log1_5(z) / math.sqrt(z.b), _ams_vectors, _INDEPENDENT),
    "countsketch": ("lem:cs_inf", lambda z: math.log(1 / z.delta), lambda z: _chaos(1.0, z.delta), _SIGNS),
    "sparse1": ("lem:sparse_inf", lambda z: _log1_5(z) / math.sqrt(z.nnz), _sparse_vectors, _INDEPENDENT),
    "sparse2": ("lem:sparse_inf", lambda z: _log1_5(z) / math.sqrt(z.nnz), _sparse_vectors, _INDEPENDENT),
    "uniform": ("lem:uniform_inf", lambda z: 1 + z.d / z.b, lambda z: max(z.d / z.b - 1, 1.0), "nothing: certain"),
}


def columns(family: str, *, d: int, b: int, delta: float, nnz: int = 4) -> Tail:
    """max_{i != j} |<R_i, R_j>| over the columns of R (lemmas ``*_ip``)."""
    return _tail(_COLUMNS, family, _size(family, d, b, delta, nnz))


def vectors(family: str, *, d: int, b: int, delta: float, nnz: int = 4) -> Tail:
    """|gᵀRᵀR h - gᵀh| / (|g| |h|) for fixed g and h (lemmas ``*_inf``)."""
    return _tail(_VECTORS, family, _size(family, d, b, delta, nnz))


def chebyshev(family: str, *, d: int, b: int, delta: float) -> Tail:
    """The same by Chebyshev, for every family: t = sqrt(a/(b·delta)); ``lem:cs_inf_2`` prints a = 1."""
    _size(family, d, b, delta, 1)
    a = embedding(family, d=d, b=b).a
    return Tail(family, "lem:cs_inf_2", 1 / math.sqrt(b * delta), math.sqrt(a / (b * delta)), "the moments only")


def _size(family: str, d: int, b: int, delta: float, nnz: int) -> _Size:
    embedding(family, d=d, b=b)  # refuses an unknown family or size
    if not 0 < delta < 1:
        raise TheoryError(f"delta is a probability strictly between 0 and 1, got {delta}")
    if nnz < 1:
        raise TheoryError(f"nnz counts the non-zeros of a column and is at least 1, got {nnz}")
    return _Size(d, b, min(nnz, b), delta)


def _tail(table: dict[str, tuple[str, _Threshold, _Threshold, str]], family: str, z: _Size) -> Tail:
    lemma, paper, proved, needs = table[family]
    return Tail(family, lemma, paper(z), proved(z), needs)
