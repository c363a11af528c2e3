"""The discrete Gaussian N_Z(0, s^2), sampled exactly: ``P[n] = exp(-n^2 / 2 s^2) / sum_k exp(-k^2 / 2 s^2)``.

Algorithms 1 to 3 of Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), on whole arrays,
for an integer s.  Every decision is a comparison of integers with random bits; no floating-point number takes part, so
the distribution is the stated one, not one near it.  Integers stay below 2^63 for ``s < 2^23``, but for draws beyond
360 s, which have a probability below 1e-150.

Algorithm 3 rejects from a discrete Laplace law of scale t; any t is correct, and t = s makes its acceptance probability
``exp(-(|y| - s)^2 / 2 s^2)``, about 0.76 on average.  How long a draw takes depends on what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError

__all__ = ["LARGEST", "bernoulli", "bernoulli_exp", "coins", "discrete_gaussian", "discrete_laplace"]

Draw = Callable[[int], bytes]  # so many fresh random bytes
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

LARGEST = (1 << 23) - 1


def discrete_gaussian(draw: Draw, n: int, s: int) -> Integers:
    """Return n independent draws of N_Z(0, s^2) (Algorithm 3)."""
    if isinstance(s, bool) or not isinstance(s, int) or not 1 <= s <= LARGEST:
        raise InputError(f"the parameter of a discrete Gaussian is a whole number from 1 to {LARGEST}, got {s!r}")

    def candidates(size: int) -> Integers:
        y = discrete_laplace(draw, size, s)
        return y[_bernoulli_exp_of_any(draw, (np.abs(y) - s) ** 2, 2 * s * s)]

    return _first(n, candidates, waste=1.32)


def discrete_laplace(draw: Draw, n: int, t: int) -> Integers:
    """Return n independent draws with ``P[y]`` proportional to ``exp(-|y| / t)`` (Algorithm 2)."""

    def candidates(size: int) -> Integers:
        u = _uniform(draw, size, t)
        u = u[bernoulli_exp(draw, u, t)]
        y = u + t * _successes_in_a_row(draw, len(u))
        negative = coins(draw, len(y), 1, 2)
        return np.where(negative, -y, y)[~(negative & (y == 0))]  # or zero would count twice

    return _first(n, candidates, waste=1.59)


def bernoulli_exp(draw: Draw, p: Integers, q: int) -> Booleans:
    """True with probability ``exp(-p/q)`` each, for ``p <= q < 2^47`` (Algorithm 1).

    Coins of bias ``p/q``, ``p/2q``, ``p/3q``, ... come up an even number of times in a row that often.
    """
    even = np.ones(len(p), bool)
    still = np.flatnonzero(bernoulli(draw, p, q))
    k = 1
    while still.size:
        even[still] ^= True
        k += 1
        still = still[coins(draw, len(still), 1, k)]
        still = still[bernoulli(draw, p[still], q)]
    return even


def bernoulli(draw: Draw, p: Integers, q: int) -> Booleans:
    """True with probability ``p/q`` each, for ``p <= q < 2^47``.

    A uniform real is compared with p/q by one digit of 16 bits after the other, to the first digit that decides.
    """
    ahead = p << 16
    ahead -= _digits(draw, len(p)) * np.int64(q)
    found = ahead >= q
    unclear = np.flatnonzero((ahead > 0) & ~found)
    if unclear.size:
        found[unclear] = bernoulli(draw, ahead[unclear], q)
    return found


def coins(draw: Draw, n: int, p: int, q: int) -> Booleans:
    """`bernoulli` of one probability, n times."""
    digits, (first, rest) = _digits(draw, n), divmod(p << 16, q)
    found = digits < first
    unclear = np.flatnonzero(digits == first)
    if unclear.size and rest:
        found[unclear] = coins(draw, unclear.size, rest, q)
    return found


def _bernoulli_exp_of_any(draw: Draw, p: Integers, q: int) -> Booleans:
    """`bernoulli_exp` without ``p <= q``: ``exp(-x)`` is as many factors ``1/e`` as x has whole parts, and the rest."""
    found = np.zeros(len(p), bool)
    still = np.arange(len(p))
    while still.size:
        last = p[still] < q
        ready, still = still[last], still[~last]
        found[ready] = bernoulli_exp(draw, p[ready], q)
        still = still[_one_in_e(draw, len(still))]
        p[still] -= q
    return found


def _successes_in_a_row(draw: Draw, n: int) -> Integers:
    """How often a coin of bias 1/e comes up before it does not."""
    count = np.zeros(n, np.int64)
    still = np.arange(n)
    while still.size:
        still = still[_one_in_e(draw, len(still))]
        count[still] += 1
    return count


def _one_in_e(draw: Draw, n: int) -> Booleans:
    """`bernoulli_exp` at p = q: the first coin always comes up."""
    even = np.zeros(n, bool)
    still, k = np.arange(n), 2
    while still.size:
        still = still[coins(draw, len(still), 1, k)]
        even[still] ^= True
        k += 1
    return even


def _uniform(draw: Draw, n: int, t: int) -> Integers:
    """Uniform on 0, ..., t - 1: as many bits as t - 1 has, until they are below t."""
    mask = np.uint32((1 << (t - 1).bit_length()) - 1)

    def candidates(size: int) -> Integers:
        words = np.frombuffer(draw(4 * size), np.uint32) & mask
        return words[words < t].astype(np.int64)

    return _first(n, candidates, waste=(int(mask) + 1) / t)


def _digits(draw: Draw, n: int) -> npt.NDArray[np.uint16]:
    return np.frombuffer(draw(2 * n), np.uint16)


def _first(n: int, candidates: Callable[[int], Integers], *, waste: float) -> Integers:
    """The first n of independent draws that survive a rejection; ``waste`` only guesses how many to try at once."""
    found = [candidates(int(n * waste * 1.03) + 16)] if n else [np.zeros(0, np.int64)]
    while (missing := n - sum(len(one) for one in found)) > 0:
        found.append(candidates(int(missing * waste * 1.1) + 16))
    return np.concatenate(found)[:n]
