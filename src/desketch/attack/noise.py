"""Noise: what stands between R G(x) and the numbers observed, and its whitening.

With noise of std ``before`` on the update and ``after`` on the sketch, the observed s = R (G + n) + n' has covariance
``before² R Rᵀ + after² I``.  Multiplying by the inverse of its Cholesky factor makes every direction count as it
should: least squares on the whitened residual is maximum likelihood, and its Jacobian's Gram matrix is the Fisher
information.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.sketches import Sketch

__all__ = ["ObservedNoise", "Whitening", "whiten"]


@dataclass(frozen=True)
class ObservedNoise:
    """Gaussian noise as the attacker knows it: std per weight before the sketch, std per number after it."""

    before: float = 0.0
    after: float = 0.0

    def __post_init__(self) -> None:
        if not (self.before >= 0 and self.after >= 0 and math.isfinite(self.before + self.after)):
            raise InputError(f"noise stds must be finite and >= 0, got before={self.before}, after={self.after}")

    def __bool__(self) -> bool:
        return self.before > 0 or self.after > 0

    def sample(self, R: Sketch | None, size: int, generator: torch.Generator) -> Tensor:
        """One draw of the noise in the sketch domain, for simulated observations."""
        d = size if R is None else R.d
        n = self.before * torch.randn(d, generator=generator, dtype=torch.float64)
        n = n if R is None else R.sketch(n)
        return n + self.after * torch.randn(size, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Whitening:
    """v -> L⁻¹ v on the kept rows; ``factor`` is a scalar, a diagonal, or a lower triangle L."""

    factor: Tensor
    keep: Tensor | None = None

    def __call__(self, v: Tensor) -> Tensor:
        """Whiten the last axis."""
        v = v if self.keep is None else v[..., self.keep]
        if self.factor.ndim < 2:
            return v / self.factor
        flat = v.reshape(-1, v.shape[-1]).T
        return torch.linalg.solve_triangular(self.factor, flat, upper=False).T.reshape(v.shape)

    def transpose(self, v: Tensor, size: int) -> Tensor:
        """L⁻ᵀ v, back on all ``size`` rows; v is one vector."""
        if self.factor.ndim < 2:
            out = v / self.factor
        else:
            out = torch.linalg.solve_triangular(self.factor.T, v[:, None], upper=True)[:, 0]
        if self.keep is None:
            return out
        full = v.new_zeros(size)
        full[self.keep] = out
        return full


def whiten(noise: ObservedNoise, R: Sketch | None, size: int, *, scale: float) -> Whitening:
    """The whitening of ``noise``; without noise, division by ``scale`` so that losses are relative."""
    if not noise:
        return Whitening(torch.tensor(scale, dtype=torch.float64))
    if R is None or noise.before == 0:
        return Whitening(torch.tensor(math.hypot(noise.before, noise.after), dtype=torch.float64))
    covariance = noise.before**2 * R.sketch(R.desketch(torch.eye(size, dtype=torch.float64)))
    covariance += noise.after**2 * torch.eye(size, dtype=torch.float64)
    diagonal = covariance.diagonal().clone()
    keep = diagonal > 1e-12 * diagonal.max()  # CountSketch leaves some buckets empty: they carry nothing
    rows = None if bool(keep.all()) else keep
    covariance = covariance if rows is None else covariance[rows][:, rows]
    diagonal = covariance.diagonal().clone()
    if bool(torch.count_nonzero(covariance) == torch.count_nonzero(diagonal)):
        return Whitening(diagonal.sqrt(), rows)
    return Whitening(torch.linalg.cholesky(covariance), rows)
