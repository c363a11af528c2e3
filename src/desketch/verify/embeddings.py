"""The lemmas about one sketch: unbiased, its second moments, its tails; on matrices the library draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from desketch.theory import embedding
from desketch.theory.tails import Tail, chebyshev, columns, vectors
from desketch.verify.rows import Row, frequency_row, sampled_row, unbiased_row
from desketch.verify.simulate import Draws

__all__ = ["check_moments", "check_tails"]

Array = np.ndarray[Any, np.dtype[Any]]


def check_moments(draws: Draws) -> Iterator[Row]:
    """``lem:expectation``, the lemmas ``lem:var_*`` and ``thm:enc_dec``, with printed and exact constants."""
    b, d = draws.R.shape[2:]
    size = f"d={d}, b={b}"
    for f, family in enumerate(draws.families):
        grams, constants = _grams(draws, f), embedding(family, d=d, b=b)
        for name, g, h in _pairs(d):
            inner = (grams @ h) @ g
            yield unbiased_row("lem:expectation", f"{name}, {size}", family, inner, float(g @ h))
            for a, corrected in ((constants.a_paper, False), (constants.a, True)):
                bound = np.array([(g @ h) ** 2 + a / b * (g @ g) * (h @ h)])
                yield sampled_row(
                    constants.lemma, f"{name}, {size}", family, inner[None] ** 2, bound, corrected=corrected
                )
        for name, g, _ in _pairs(d):
            energy = (((grams @ g) ** 2).sum(1) / (g @ g))[None]
            for alpha, corrected in ((constants.alpha_paper, False), (constants.alpha, True)):
                bound = np.array([1 + alpha])
                yield sampled_row("thm:enc_dec", f"{name}, {size}", family, energy, bound, corrected=corrected)


def check_tails(draws: Draws, *, delta: float = 0.05) -> Iterator[Row]:
    """The high-probability lemmas with every constant, as frequencies over the draws."""
    b, d = draws.R.shape[2:]
    g, h = (x / np.linalg.norm(x) for x in np.random.default_rng(4).normal(size=(2, d)))
    for f, family in enumerate(draws.families):
        grams = _grams(draws, f)
        inner = np.abs(grams * (1 - np.eye(d))).max((1, 2))
        error = np.abs((grams @ h) @ g - g @ h)
        size: dict[str, Any] = {"d": d, "b": b, "delta": delta}
        tails: tuple[tuple[Tail, Array], ...] = (
            (columns(family, **size), inner),
            (vectors(family, **size), error),
            (chebyshev(family, **size), error),
        )
        for tail, measured in tails:
            setting = f"proved constant, delta={delta}, d={d}, b={b}"
            failures = measured > tail.proved + 1e-6
            yield frequency_row(tail.lemma, setting, family, failures, delta, corrected=True)


def _pairs(d: int) -> tuple[tuple[str, Array, Array], ...]:
    """Pairs g, h of norm one: equal and flat, one-hot beside flat, random."""
    flat, hot = np.ones(d) / np.sqrt(d), np.eye(d)[0]
    g, h = (x / np.linalg.norm(x) for x in np.random.default_rng(3).normal(size=(2, d)))
    return (("flat g", flat, flat), ("one-hot g", hot, flat), ("random g", g, h))


def _grams(draws: Draws, f: int) -> Array:
    R = draws.R[f * draws.seeds : (f + 1) * draws.seeds].astype(np.float64).reshape(-1, *draws.R.shape[2:])
    return R.transpose(0, 2, 1) @ R
