"""How often the printed inner-product lemmas fail, bounded from below: no constant in "<= Θ(delta)" saves them.

Lemmas ``lem:gaussian_ip``, ``lem:srht_ip`` and ``lem:ams_ip`` print, for R in R^{b x n},

    P(max_{i != j} |<R_i, R_j>| >= t) <= Θ(delta),        t = sqrt(log(n/delta)/b).

One product exceeds t with probability P1, about sqrt(delta/n), and there are far more than sqrt(n) of them.  Let N
count those that do; P(N > 0) >= E[N]²/E[N²], and

* *ams*: different pairs of columns have independent products (four columns of 4-wise independent rows), so with
  μ = n(n-1)/2 · P1 the bound is μ/(μ + 1 - P1), P1 an exact binomial tail;
* *srht*: products take n - 1 values |W(k)|/b, W the Hadamard transform of the indicator of the sampled rows.  Any two
  are sums over the same b rows drawn without replacement from four classes of n/4: hypergeometric, computed exactly;
* *gaussian*: floor(n/2) disjoint pairs are independent, and P1 >= P(χ²_b >= b) erfc(sqrt(log(n/delta)/2)).

Each tends to 1 as n grows at fixed delta, whatever b for gaussian, for log(n/delta) <= b <= n for ams, and for
log(n/delta) <= b = o(√n) for srht (``docs/theory.md``).  Below log(n/delta) the threshold exceeds 1, which a product of
columns of norm one cannot: there the two lemmas are true and say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

from desketch.errors import TheoryError
from desketch.theory.tails import columns

__all__ = ["exceeded_at_least"]


def exceeded_at_least(family: str, *, n: int, b: int, delta: float) -> float:
    """A lower bound on P(max_{i != j} |<R_i, R_j>| >= printed threshold) for a sketch of n columns and b rows."""
    if family not in _BOUNDS:
        raise TheoryError(f"the bound is known for {', '.join(_BOUNDS)}, got {family!r}")
    threshold = columns(family, d=n, b=b, delta=delta).paper
    if family == "srht" and (n < 4 or n & (n - 1)):
        raise TheoryError(f"the printed lemma takes n a power of two, at least 4, got {n}")
    return _BOUNDS[family](n, b, threshold)


def _ams(n: int, b: int, t: float) -> float:
    one = _two_sided([_choose(b, k) - b * math.log(2) for k in range(b + 1)], b, t)
    expected = n * (n - 1) / 2 * one
    return expected / (expected + 1 - one) if expected else 0.0


def _srht(n: int, b: int, t: float) -> float:
    one = _two_sided(_hypergeometric(n, n // 2, b), b, t)
    if not one:
        return 0.0
    both = 0.0
    for j, log_p in enumerate(_hypergeometric(n, n // 2, b)):
        if _far(j, b, t) and log_p > -math.inf:
            both += math.exp(log_p) * _second(n // 2, j, b - j, b, t)
    return (n - 1) * one**2 / (one + (n - 2) * both)


def _second(half: int, j: int, k: int, b: int, t: float) -> float:
    """P(the second product is large too) when j sampled rows have the first sign plus and k minus, of ``half`` each."""
    plus = [math.exp(v) for v in _hypergeometric(half, half // 2, j)]
    minus = list(accumulate((math.exp(v) for v in _hypergeometric(half, half // 2, k)), initial=0.0))
    low, high = _limits(b, t)

    def outside(x: int) -> float:
        below = minus[min(max(low - x + 1, 0), k + 1)]
        return below + minus[-1] - minus[min(max(high - x, 0), k + 1)]

    return math.fsum(p * outside(x) for x, p in enumerate(plus))


def _gaussian(n: int, b: int, t: float) -> float:
    one = _chi_squared_beyond_mean(b) * math.erfc(t * math.sqrt(b / 2))
    return -math.expm1(n // 2 * math.log1p(-one))


_BOUNDS: dict[str, Callable[[int, int, float], float]] = {"gaussian": _gaussian, "srht": _srht, "ams": _ams}


def _limits(b: int, t: float) -> tuple[int, int]:
    """|2k - b| >= tb for a count k of plus signs means k <= low or k >= high."""
    high = math.ceil(b * (1 + t) / 2 - 1e-9)
    return b - high, high


def _far(k: int, b: int, t: float) -> bool:
    low, high = _limits(b, t)
    return k <= low or k >= high


def _two_sided(log_pmf: list[float], b: int, t: float) -> float:
    return math.fsum(math.exp(v) for k, v in enumerate(log_pmf) if _far(k, b, t))


def _hypergeometric(population: int, marked: int, draws: int) -> list[float]:
    """Log-probabilities of 0..draws marked ones among ``draws`` without replacement."""
    total = _choose(population, draws)
    return [_choose(marked, k) + _choose(population - marked, draws - k) - total for k in range(draws + 1)]


def _choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _chi_squared_beyond_mean(b: int) -> float:
    """P(χ²_b >= b), one minus the series of the incomplete gamma function at a = x = b/2."""
    a = b / 2
    term = math.exp(a * math.log(a) - a - math.lgamma(a + 1))
    total, k = 0.0, 0
    while term > 1e-17:
        total, k = total + term, k + 1
        term *= a / (a + k)
    return 1 - total
