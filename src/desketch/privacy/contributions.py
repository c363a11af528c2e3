"""What every example of a batch adds to one layer's clipped sum, with norms that hold in floating point.

A contribution is a function of its own example alone.  It comes in three forms; each knows an upper bound of the
examples' squared norms and adds the examples up with given factors, both in float64:

- `Rows`: the gradients themselves, as computed, in whatever precision;
- `Outer`: ``s_i a_i^T`` by its two vectors, never formed: ``|s_i| |a_i|`` is its norm;
- `Gram`: ``sum_t s_it a_it^T`` over T positions, never formed: the norm is ``sum_tu (a_t . a_u)(s_t . s_u)``.

Float32 numbers multiply exactly in float64 and their fourth powers neither overflow nor underflow there, so `Rows` and
`Outer` are exact but for ``n 2^-53``.  In `Gram` large terms may cancel.  With ``reach = sum_t |s_t| |a_t|``, the
computed square is wrong by at most ``n 2^-53 reach^2``, n the number of terms: that is added, so the norm is never too
small.  And a product over m terms errs by at most ``m 2^-53 reach``.  An example whose reach exceeds `CANCELLING` times
both its norm and the clip becomes a row of its own.  What is left loses at most ``2^13 2^-53 CANCELLING`` of a clip per
example, 6e-11 of it, when it is added up (docs/security.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["CANCELLING", "Contribution", "Gradients", "Gram", "Outer", "Rows"]

Gradients = dict[str, Tensor]
CANCELLING = 64.0
_ROUNDING = 2.0**-53
_TERMS = 1 << 13  # products added in one go: bounds the rounding of a sum


class Contribution(ABC):
    """One layer's share of the examples' gradients."""

    square_norms: Tensor  # (B,) in float64, never below the squared norm of what is summed

    @abstractmethod
    def weighted_sum(self, factors: Tensor) -> Gradients:
        """Return ``sum_i factors_i g_i`` in float64, by parameter name."""


class Rows(Contribution):
    """Gradients one by one, ``(B, *shape)`` by parameter name."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients
        norms = [torch.linalg.vector_norm(g.flatten(1).double(), dim=1) for g in gradients.values()]
        self.square_norms = torch.stack(norms).square().sum(0)

    def weighted_sum(self, factors: Tensor) -> Gradients:
        """Scale and add in float64."""
        return {name: (factors @ g.flatten(1).double()).view(g.shape[1:]) for name, g in self._gradients.items()}


class Outer(Contribution):
    """``s_i a_i^T`` for ``(B, o)`` and ``(B, i)``, and the bias ``s_i``."""

    def __init__(self, a: Tensor, s: Tensor, *, bias: bool) -> None:
        self._a, self._s, self._bias = a.double(), s.double(), bias
        self.square_norms = self._s.square().sum(1) * (self._a.square().sum(1) + float(bias))

    def weighted_sum(self, factors: Tensor) -> Gradients:
        """Scale the smaller side of the product, then multiply."""
        s = self._s * factors[:, None]
        weight = {"weight": _product(s, self._a)}
        return weight | {"bias": s.sum(0)} if self._bias else weight


class Gram(Contribution):
    """``sum_t s_it a_it^T`` for ``(B, groups, T, o)`` and ``(B, groups, T, i)``, and the bias ``sum_t s_it``.

    ``rows(index)`` forms the gradients of some examples, for those that cancel too much.
    """

    def __init__(
        self, a: Tensor, s: Tensor, *, bias: bool, clip: float, shape: torch.Size, rows: Callable[[Tensor], Gradients]
    ) -> None:
        self._a, self._s, self._bias, self._shape = a.double(), s.double(), bias, shape
        extra = float(bias)  # a bias is the weight of an input that is always one
        gram = ((self._a @ self._a.mT + extra) * (self._s @ self._s.mT)).sum((1, 2, 3))
        reach = ((self._a.square().sum(-1) + extra).sqrt() * self._s.square().sum(-1).sqrt()).sum((1, 2))
        terms = a.shape[-1] + s.shape[-1] + a.shape[1] * a.shape[2] ** 2 + 8
        self.square_norms = gram.clamp(min=0.0) + 2 * terms * _ROUNDING * reach.square()
        wild = reach > CANCELLING * self.square_norms.sqrt().clamp(min=clip)
        self._wild = wild.nonzero().squeeze(1)
        self._rows = Rows(rows(self._wild)) if len(self._wild) else None
        if self._rows is not None:
            self.square_norms[self._wild] = self._rows.square_norms

    def weighted_sum(self, factors: Tensor) -> Gradients:
        """Multiply out what is tame, add the rows of the rest."""
        tame = factors.index_fill(0, self._wild, 0.0)
        s = self._s * tame[:, None, None, None]
        groups = [_product(s[:, j].flatten(0, 1), self._a[:, j].flatten(0, 1)) for j in range(s.shape[1])]
        found = {"weight": torch.cat(groups).view(self._shape)}
        if self._bias:
            found["bias"] = s.sum((0, 2)).flatten()
        if self._rows is not None:
            for name, g in self._rows.weighted_sum(factors[self._wild]).items():
                found[name] += g
        return found


def _product(s: Tensor, a: Tensor) -> Tensor:
    """``s^T a`` over the first dimension, at most `_TERMS` terms at a time."""
    total = s[:_TERMS].mT @ a[:_TERMS]
    for start in range(_TERMS, len(s), _TERMS):
        total += s[start : start + _TERMS].mT @ a[start : start + _TERMS]
    return total
