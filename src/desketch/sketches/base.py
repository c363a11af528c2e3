"""Family, a distribution of matrices, and Sketch, the matrix R in R^{b x d} drawn from it by a key.

Every family is a coordinate-wise embedding (paper, Definition of (α, β, δ)-coordinate-wise embedding): ``E[RᵀR g] =
g`` and ``E|RᵀR g|² <= (1 + alpha)|g|²``.  Sketching applies R, de-sketching applies Rᵀ.

A drawn R is applied by the compiled kernels, or by the reference path (torch) on other devices and where the
extension is missing.  Both draw the same R; de-sketching by additions alone gives the same bits on both.
"""

from __future__ import annotations

import operator
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

import numpy as np
import numpy.typing as npt

from desketch.core import compiled
from desketch.errors import SketchError
from desketch.keys import Key

if TYPE_CHECKING:
    from torch import Tensor

    from desketch.sketches.reference import LinearMap

Array = TypeVar("Array", "Tensor", "npt.NDArray[Any]")  # torch in, torch out; NumPy in, NumPy out
__all__ = ["Family", "Sketch"]

MAX_D = 2**31
_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_TENSOR_DTYPES = frozenset({"torch.float32", "torch.float64"})


@dataclass(frozen=True, kw_only=True)
class Family(ABC):
    """A distribution over b x d matrices with E[RᵀR] = I."""

    name: ClassVar[str]
    d: int
    b: int

    def __post_init__(self) -> None:
        for letter in ("d", "b"):
            object.__setattr__(self, letter, integer(letter, getattr(self, letter)))
        if not 1 <= self.b <= self.d <= MAX_D:
            raise SketchError(
                f"a sketch needs 1 <= b <= d <= 2^31, got b={self.b}, d={self.d}; lower b (or the compression) to fit"
            )

    @property
    @abstractmethod
    def alpha(self) -> float:
        """The supremum over g of E|RᵀR g|²/|g|² - 1, in closed form."""

    @property
    @abstractmethod
    def alpha_paper(self) -> float:
        """The paper's table value of alpha."""

    @abstractmethod
    def reference(self, key: Key) -> LinearMap:
        """Draw R as a torch operator, straight from the spec."""

    @abstractmethod
    def sizes(self) -> dict[str, float]:
        """What the compiled kernel of the family needs besides d, b and the key."""

    @cached_property
    def _arguments(self) -> dict[str, float]:
        return {"d": self.d, "b": self.b, **self.sizes()}

    def plan(self, key: Key) -> Any:
        """Draw R as a compiled operator; None if the family has none, then the reference path serves."""
        return compiled.plan(self.name, key.bits, self._arguments)

    def details(self) -> str:
        """The options, as ``repr`` shows them."""
        return ""


@final
@dataclass(frozen=True, eq=True, repr=False)
class Sketch:
    """A drawn operator: immutable, and a pure function of (family, d, b, options, key)."""

    distribution: Family
    key: Key
    _plan: Any = field(init=False, compare=False)
    _threads: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, Key):
            raise SketchError(f"a sketch is drawn from a desketch.Key, got {self.key!r}; use Key(seed)")
        plan = self.distribution.plan(self.key) if compiled.wanted() else None
        self.__dict__.update(_plan=plan, _threads=compiled.thread_limit())

    @property
    def compiled(self) -> bool:
        """Whether CPU data goes through the compiled kernels."""
        return self._plan is not None

    @property
    def d(self) -> int:
        """Numbers in a vector."""
        return self.distribution.d

    @property
    def b(self) -> int:
        """Numbers in its sketch."""
        return self.distribution.b

    @property
    def family(self) -> str:
        """The family's name."""
        return self.distribution.name

    @property
    def alpha(self) -> float:
        """The supremum over g of E|RᵀR g|²/|g|² - 1, in closed form."""
        return self.distribution.alpha

    @property
    def alpha_paper(self) -> float:
        """The paper's table value of alpha."""
        return self.distribution.alpha_paper

    def sketch(self, g: Array) -> Array:
        """R g: ``(..., d) -> (..., b)``; torch or NumPy in, same kind out, differentiable."""
        return self._call(g, self.d, "g", transpose=False)

    def desketch(self, s: Array, *, out: Array | None = None) -> Array:
        """Rᵀ s: ``(..., b) -> (..., d)``; torch or NumPy in, same kind out, differentiable; into ``out`` if given."""
        if out is None:
            return self._call(s, self.b, "s", transpose=True)
        return self._desketch_into(out, s, 1.0, add=False)

    def desketch_add_(self, w: Array, s: Array, scale: float = 1.0) -> Array:
        """``w += scale * Rᵀ s`` in place, without an intermediate d-vector; returns w."""
        return self._desketch_into(w, s, float(scale), add=True)

    def _desketch_into(self, w: Any, s: Any, scale: float, *, add: bool) -> Any:
        if self._check(w, self.d, "w") is not self._check(s, self.b, "s") or w.dtype != s.dtype:
            raise SketchError(f"w and s must be of one kind and dtype, got {w.dtype} and {s.dtype}; convert s first")
        if w.shape[:-1] != s.shape[:-1]:
            raise SketchError(
                f"w {tuple(w.shape)} and s {tuple(s.shape)} must have the same batch axes; expand s first"
            )
        arrays = (w, s) if isinstance(w, np.ndarray) else _tensors().arrays(w, s)
        if self._plan is None or arrays is None or not arrays[0].flags.c_contiguous:
            w[...] = w + self.desketch(s * scale) if add else self.desketch(s)
            return w
        target, source = arrays[0], np.ascontiguousarray(arrays[1])
        self._plan.desketch(source, target, scale, add, compiled.workers(target.size, self._threads))
        return w

    def to_dense(self) -> npt.NDArray[np.float64]:
        """The b x d matrix in float64; for tests and tiny examples."""
        return self.desketch(np.eye(self.b))

    def apply_array(self, x: npt.NDArray[Any], transpose: bool) -> npt.NDArray[Any]:
        """Apply the compiled R (or Rᵀ) to the last axis of an array already checked."""
        x = np.ascontiguousarray(x)
        out = compiled.empty((*x.shape[:-1], self.d if transpose else self.b), x.dtype)
        if transpose:
            self._plan.desketch(x, out, 1.0, False, compiled.workers(out.size, self._threads))
        else:
            self._plan.sketch(x, out, compiled.workers(x.size, self._threads))
        return out

    def apply_at(self, source: int, target: int, rows: int, single: bool, transpose: bool) -> None:
        """Apply the compiled R (or Rᵀ) to rows already checked at one address, into another."""
        threads = compiled.workers(rows * self.d, self._threads)
        if transpose:
            self._plan.desketch_at(source, target, rows, single, 1.0, False, threads)
        else:
            self._plan.sketch_at(source, target, rows, single, threads)

    def _check(self, x: Any, size: int, name: str) -> type:
        """Check kind, shape and dtype; return the kind."""
        if isinstance(x, np.ndarray):
            kind: type = np.ndarray
            real = x.dtype in _DTYPES
        elif "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor):
            kind = sys.modules["torch"].Tensor
            real = str(x.dtype) in _TENSOR_DTYPES
        else:
            raise SketchError(f"{name} must be a torch tensor or a NumPy array, got {type(x).__name__}")
        shape = x.shape
        if not shape or shape[-1] != size:
            raise SketchError(
                f"the last axis of {name} must have {size} numbers for {self!r}, got shape {tuple(shape)}; "
                "flatten first"
            )
        if not real:
            raise SketchError(f"{name} must be float32 or float64, got {x.dtype}; convert it first, e.g. with .float()")
        return kind

    def _call(self, x: Any, size: int, name: str, *, transpose: bool) -> Any:
        if self._check(x, size, name) is not np.ndarray:
            return _tensors().linear(x, self, transpose)
        if self._plan is not None:
            return self.apply_array(x, transpose)
        return _tensors().apply_reference_to_array(self, x, transpose)

    @cached_property
    def reference(self) -> LinearMap:
        """R as a torch operator, drawn straight from the spec."""
        return self.distribution.reference(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sketch, (self.distribution, self.key)

    def __repr__(self) -> str:
        details = self.distribution.details()
        return f"{self.family}(d={self.d}, b={self.b}{details and ', ' + details}, alpha={self.alpha:.3g})"


def integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, or say that it must be one."""
    if isinstance(value, bool):
        raise SketchError(f"{name} must be an integer, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise SketchError(f"{name} must be an integer, got {value!r}; round it first") from None


@cache
def _tensors() -> Any:
    """The torch half, imported when a tensor (or the reference path) is first met."""
    from desketch.sketches import tensors

    return tensors
