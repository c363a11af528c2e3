"""Sketch: a drawn linear operator R in R^{b x d} (paper, Definition "a-coordinate-wise embedding").

``E[RᵀR g] = g`` and ``E|RᵀR g|² <= (1 + alpha)|g|²``; sketching applies R, de-sketching applies Rᵀ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from desketch.errors import SketchError
from desketch.keys import Key

__all__ = ["Sketch"]


class Sketch(ABC):
    """A drawn operator; immutable, and a pure function of (family, d, b, options, key)."""

    family: str

    def __init__(self, *, d: int, b: int, key: Key) -> None:
        if not 1 <= b <= d:
            raise SketchError(f"a sketch needs 1 <= b <= d, got b={b}, d={d}; lower b (or the compression) to fit")
        self.d, self.b, self.key = int(d), int(b), key

    @abstractmethod
    def _apply(self, g: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _apply_t(self, s: np.ndarray) -> np.ndarray: ...

    @property
    @abstractmethod
    def alpha(self) -> float:
        """The supremum over g of E|RᵀR g|²/|g|² - 1, in closed form."""

    @property
    @abstractmethod
    def alpha_paper(self) -> float:
        """The paper's table value of alpha."""

    def sketch(self, g: Any) -> Any:
        """R g: ``(..., d) -> (..., b)``; torch or NumPy in, same kind out, differentiable."""
        return _call(self, g, self.d, transpose=False)

    def desketch(self, s: Any) -> Any:
        """Rᵀ s: ``(..., b) -> (..., d)``; torch or NumPy in, same kind out, differentiable."""
        return _call(self, s, self.b, transpose=True)

    def desketch_add_(self, w: Any, s: Any, scale: float = 1.0) -> Any:
        """``w += scale * Rᵀ s`` in place; returns w."""
        w += scale * self.desketch(s)
        return w

    def to_dense(self) -> np.ndarray:
        """The b x d matrix in float64; for tests and tiny examples."""
        return np.ascontiguousarray(self._apply(np.eye(self.d)).T)

    def __repr__(self) -> str:
        return f"{self.family}(d={self.d}, b={self.b}, alpha={self.alpha:.3g})"


def _call(R: Sketch, x: Any, size: int, *, transpose: bool) -> Any:
    if x.shape[-1] != size:
        raise SketchError(f"the last axis must have {size} numbers, got shape {tuple(x.shape)}")
    if isinstance(x, np.ndarray):
        out = (R._apply_t if transpose else R._apply)(x.reshape(-1, size).astype(np.float64))
        return out.reshape(*x.shape[:-1], -1).astype(x.dtype)
    import torch

    class Apply(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return torch.from_numpy(_call(R, x.detach().cpu().numpy(), size, transpose=transpose)).to(x.device)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return R.sketch(g) if transpose else R.desketch(g)

    return Apply.apply(x)  # type: ignore[no-untyped-call]
