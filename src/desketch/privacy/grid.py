"""The grid on which sketches are clipped, summed and hidden: whole numbers of steps, so that nothing rounds unseen.

A clipped sketch becomes a vector of integers n with ``|n| <= C / step``, which is checked in integers: rounded to the
nearest where that is short enough, towards zero otherwise, which never lengthens.  So one unit more or less moves an
integer sum by at most ``C / step``, and one unit replaced by another by at most twice that; no correction is due.

The noise is discrete Gaussian with an integer parameter s per share, such that over all shares

    shares s^2 >= (noise_std / step)^2 + 16.

Those 16 pay for the proof that it hides as much as the continuous Gaussian of ``noise_std`` (docs/privacy.md).  They,
and rounding s up, lengthen the noise by less than a part in 10^5 for common settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from desketch.errors import InputError, PrivacyError
from desketch.privacy.clip import clip_rows
from desketch.privacy.discrete_gaussian import LARGEST

__all__ = ["Grid"]

SMOOTHING = 16  # s2^2 of the lemma: exp(-2 pi^2 16) < 1e-137
_FINE = 20  # binary digits of the smaller of clip and noise
_LEAST = 32  # of s: far above what the lemma needs
_FARTHEST = 1 << 40  # nobody's honest share of a sum, in steps


@dataclass(frozen=True)
class Grid:
    """``step`` is a power of two; a row is clipped to ``clip``; every share of the noise has parameter ``noise``."""

    clip: float
    step: float
    noise: int

    @classmethod
    def build(cls, clip: float, noise_multiplier: float, *, shares: int = 1, float32: bool = False) -> Grid:
        """Choose a step fine enough for clip and noise; with ``float32`` a clipped row plus noise stays below 2^24."""
        std = noise_multiplier * clip / math.sqrt(shares)
        widest_clip, widest_noise = (21, 18) if float32 else (29, 21)
        exponent = max(_log2(min(std, clip)) - _FINE, _log2(clip) - widest_clip, _log2(std) - widest_noise)
        step = math.ldexp(1.0, exponent)
        variance = (Fraction(noise_multiplier) * Fraction(clip) / Fraction(step)) ** 2 + SMOOTHING
        noise = _root_above(variance / shares)
        if noise < _LEAST:
            raise InputError(
                f"a noise multiplier of {noise_multiplier:g} over {shares} shares is too small for a grid that also "
                f"holds the clip; it gives no privacy either. Choose a larger one"
            )
        return cls(clip, step, noise)

    def round(self, rows: Tensor) -> Tensor:
        """Clip ``(..., b)`` rows and return them in steps, int64, none longer than ``clip / step``."""
        scaled = clip_rows(rows, self.clip).double() / self.step
        most = math.floor((Fraction(self.clip) / Fraction(self.step)) ** 2)
        nearest = scaled.round().long()
        steps = torch.where(_squares(nearest) > most, scaled.trunc().long(), nearest)
        if bool((_squares(steps) > most).any()):
            raise PrivacyError("a clipped sketch came out longer than the clip; nothing was released")
        return steps

    def values(self, steps: Tensor) -> Tensor:
        """Return whole steps as float64 numbers, exactly."""
        return steps.double() * self.step

    def steps(self, values: Tensor) -> Tensor:
        """Return numbers that lie on the grid in steps; what is absurdly far out is brought to the border."""
        return (values.double() / self.step).round().clamp(-_FARTHEST, _FARTHEST).long()

    def top_up(self, shares: int) -> list[int]:
        """The parameters of as few draws as are worth ``shares`` shares."""
        most = (LARGEST // self.noise) ** 2
        return [_root_above(Fraction(min(most, shares - i) * self.noise**2)) for i in range(0, shares, most)]


def _squares(steps: Tensor) -> Tensor:
    return steps.square().sum(-1, keepdim=True)


def _log2(value: float) -> int:
    return math.frexp(value)[1] - 1


def _root_above(value: Fraction) -> int:
    """The least integer whose square is at least ``value``."""
    whole = math.ceil(value)
    return math.isqrt(whole - 1) + 1 if whole > 0 else 0
