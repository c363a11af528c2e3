"""Signal: how much of what clients send they have in common, and how much of that is left in a de-sketched step.

With decoded sketches s_c = R μ + e_c, errors e_c of mean 0 and independent between clients (their batches, data and
codes), weights p_c of sum 1, P = Σ p_c², A = Σ p_c |s_c|² and y = Σ p_c s_c,

    E |y|² = |Rμ|² + Σ p_c² E|e_c|²,     E A = |Rμ|² + Σ p_c E|e_c|²,

so m = (|y|² - P A) / (1 - P) estimates |Rμ|², without bias where clients' errors are of one size, and E|Rμ|² = |μ|²:

    signal_share = m / A             of the energy that arrives, the part that is common to the clients
    step_share   = (b/d) m / |y|²    cos² between u = Rᵀy and μ: <u, μ> = <y, Rμ> is about |μ|², |u|² about (d/b) |y|²

One bit a number multiplies A by π/2, so that signal_share is at most 2/π there; what the code of the way down adds is
not counted.  Both are measurements, not advice: a share that is small in one round adds up over many.
Unnoised sketches would be one more release, so a private run has neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from desketch.fed.robust import bounded_mean
from desketch.wire.rows import Rows

__all__ = ["FIRST", "Signal", "first_rounds", "measure_signal", "sentence"]

FIRST = 10
"""The rounds over which a run's signal is averaged."""


@dataclass(frozen=True)
class Signal:
    """One round's shares, or their means; an estimate may be below 0 where there is hardly any signal."""

    signal_share: float
    step_share: float


def measure_signal(
    sketches: Rows, weights: Tensor, *, d: int, norms: Tensor | None = None, mean: Tensor | None = None
) -> Signal | None:
    """The shares of decoded sketches (n, b); None of fewer than two clients, or where nothing was sent.

    ``norms`` are the lengths of the rows and ``mean`` is Σ p_c s_c, where somebody has worked them out.
    """
    if len(sketches) < 2:
        return None
    p = weights.double() / weights.double().sum()
    squares = (torch.from_numpy(sketches.norms()) if norms is None else norms).square()
    y = bounded_mean(sketches, weights, squares, inf) if mean is None else mean
    P, A, length = float(p @ p), float(p @ squares), float(torch.dot(y, y))
    if not (A > 0 and length > 0 and P < 1):
        return None
    m = (length - P * A) / (1 - P)
    return Signal(m / A, sketches.width / d * m / length)


def first_rounds(rows: Sequence[Mapping[str, Any]]) -> Signal | None:
    """The means over the first rounds of a run's rows, as far as they were measured there."""
    early = [row for row in rows if row["round"] <= FIRST and row.get("signal_share") is not None]
    if not early:
        return None
    return Signal(fmean(row["signal_share"] for row in early), fmean(row["step_share"] for row in early))


def sentence(signal: Signal) -> str:
    """The shares in words."""
    return (
        f"in the first rounds {_percent(signal.signal_share)} of what clients sent was common to them, "
        f"and {_percent(signal.step_share)} of a de-sketched step"
    )


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.2g} %"
