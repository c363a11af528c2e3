"""What anybody knows before seeing a message: a Gaussian with the mean and covariance of public data, and a box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.errors import InputError

__all__ = ["GaussianPrior"]


@dataclass(frozen=True)
class GaussianPrior:
    """x ~ N(mean, L Lᵀ), with the box [lower, upper] that valid inputs live in."""

    mean: Tensor
    factor: Tensor
    lower: float = 0.0
    upper: float = 1.0

    @classmethod
    def fit(cls, public: Tensor, *, shrinkage: float = 1e-3) -> GaussianPrior:
        """Fit to public examples (n, ...); ``shrinkage`` times the mean variance is added to the diagonal."""
        if public.shape[0] < 2:
            raise InputError(f"a prior needs at least two public examples, got {public.shape[0]}")
        x = public.reshape(public.shape[0], -1).double()
        mean = x.mean(0)
        centred = x - mean
        covariance = centred.T @ centred / (x.shape[0] - 1)
        ridge = shrinkage * covariance.diagonal().mean().clamp(min=1e-12)
        covariance = covariance + ridge * torch.eye(x.shape[1], dtype=x.dtype)
        return cls(mean, torch.linalg.cholesky(covariance), float(x.min()), float(x.max()))

    def repeat(self, examples: int) -> GaussianPrior:
        """The prior of several independent examples, flat."""
        factor = torch.kron(torch.eye(examples, dtype=self.factor.dtype), self.factor.contiguous())
        return GaussianPrior(self.mean.repeat(examples), factor, self.lower, self.upper)

    @property
    def precision(self) -> Tensor:
        """C⁻¹, the prior's Fisher information."""
        return torch.cholesky_inverse(self.factor)

    @property
    def variance(self) -> float:
        """Mean variance: the error of the guess ``mean``."""
        return float(self.factor.square().sum() / self.mean.numel())

    def whiten(self, x: Tensor) -> Tensor:
        """L⁻¹ (x - mean)."""
        return torch.linalg.solve_triangular(self.factor, (x - self.mean)[:, None], upper=False)[:, 0]

    def root_precision(self) -> Tensor:
        """L⁻¹, whose Gram matrix is the precision."""
        return torch.linalg.solve_triangular(
            self.factor, torch.eye(self.mean.numel(), dtype=torch.float64), upper=False
        )

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n examples, clipped to the box."""
        z = torch.randn(n, self.mean.numel(), generator=generator, dtype=torch.float64)
        return (self.mean + z @ self.factor.T).clamp(self.lower, self.upper)
