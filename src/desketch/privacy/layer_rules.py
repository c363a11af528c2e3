"""Per-example gradients of single layers from what flows into and out of them.

For a layer with input ``a`` and gradient ``s`` of the summed loss at its output, row ``i`` of both belongs to example
``i`` alone, so the gradient of example ``i`` is a small product of ``a_i`` and ``s_i``: ``s_i a_i^T`` for a linear
layer.  Its norm often needs no gradient at all, ``|s_i a_i^T| = |s_i| |a_i|`` (Goodfellow 2015), or a Gram matrix over
the positions of a sequence or an image; and the clipped sum is one product once ``s_i`` is scaled ("book-keeping",
Bu, Wang, Zha, Karypis 2023).

A rule chooses the form of the examples' `contributions` and can write their gradients out one by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm, layer_norm, unfold

from desketch.privacy.contributions import Contribution, Gradients, Gram, Outer, Rows

__all__ = ["RULES", "LayerRule"]


class LayerRule(ABC):
    """Gradients of one kind of layer; ``a``: its input, ``s``: the loss gradient at its output."""

    def covers(self, layer: Any) -> bool:
        """Whether this configuration of the layer is handled."""
        return True

    @abstractmethod
    def one_by_one(self, layer: Any, a: Tensor, s: Tensor) -> Gradients:
        """Return every example's gradient, ``(B, *parameter.shape)`` by parameter name."""

    def contribution(self, layer: Any, a: Tensor, s: Tensor, *, clip: float) -> Contribution:
        """Return what the examples add to a sum clipped to ``clip``."""
        return Rows(self.one_by_one(layer, a, s))

    def floats(self, layer: Any, a: Tensor) -> int:
        """Return how many numbers a contribution may hold per example."""
        return sum(p.numel() for p in layer.parameters(recurse=False))


def _few(T: int, *, i: int, o: int) -> bool:
    """Whether a Gram matrix over T positions is cheaper than the gradient, o x i."""
    return T * (i + o) < i * o


def _written_out(rule: LayerRule, layer: Any, a: Tensor, s: Tensor) -> Callable[[Tensor], Gradients]:
    """The gradients of chosen examples, in float64."""
    return lambda index: rule.one_by_one(layer, a[index].double(), s[index].double())


class LinearRule(LayerRule):
    """``nn.Linear`` on ``(B, *, in)``."""

    def one_by_one(self, layer: nn.Linear, a: Tensor, s: Tensor) -> Gradients:
        a, s = self._positions(a), self._positions(s)
        weight = {"weight": s.mT @ a}
        return weight if layer.bias is None else weight | {"bias": s.sum(1)}

    def contribution(self, layer: nn.Linear, a: Tensor, s: Tensor, *, clip: float) -> Contribution:
        bias = layer.bias is not None
        if a.dim() == 2:
            return Outer(a, s, bias=bias)
        a, s = self._positions(a), self._positions(s)
        if not _few(a.shape[1], i=a.shape[2], o=s.shape[2]):
            return Rows(self.one_by_one(layer, a, s))
        exact = _written_out(self, layer, a, s)
        return Gram(a[:, None], s[:, None], bias=bias, clip=clip, shape=layer.weight.shape, rows=exact)

    def floats(self, layer: nn.Linear, a: Tensor) -> int:
        return 0 if a.dim() == 2 else super().floats(layer, a)

    @staticmethod
    def _positions(values: Tensor) -> Tensor:
        """``(B, T, features)``."""
        return values.flatten(1, -2) if values.dim() > 2 else values[:, None]


class Conv2dRule(LayerRule):
    """``nn.Conv2d``, grouped or not, with zero padding given as numbers."""

    def covers(self, layer: nn.Conv2d) -> bool:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    def one_by_one(self, layer: nn.Conv2d, a: Tensor, s: Tensor) -> Gradients:
        patches, s_grouped = self._patches(layer, a), self._grouped(layer, s)
        weight = {"weight": (s_grouped.mT @ patches).reshape(len(a), *layer.weight.shape)}
        return weight if layer.bias is None else weight | {"bias": s.sum((2, 3))}

    def contribution(self, layer: nn.Conv2d, a: Tensor, s: Tensor, *, clip: float) -> Contribution:
        if not _few(s[0, 0].numel(), i=layer.weight[0].numel(), o=layer.out_channels // layer.groups):
            return Rows(self.one_by_one(layer, a, s))
        patches, s_grouped = self._patches(layer, a), self._grouped(layer, s)
        bias, exact = layer.bias is not None, _written_out(self, layer, a, s)
        return Gram(patches, s_grouped, bias=bias, clip=clip, shape=layer.weight.shape, rows=exact)

    @staticmethod
    def _patches(layer: nn.Conv2d, a: Tensor) -> Tensor:
        """The receptive fields, ``(B, groups, positions, in/groups * kernel)``."""
        geometry: Any = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        columns = unfold(a, *geometry)
        return columns.reshape(len(a), layer.groups, -1, columns.shape[-1]).mT

    @staticmethod
    def _grouped(layer: nn.Conv2d, s: Tensor) -> Tensor:
        """The output gradients, ``(B, groups, positions, out/groups)``."""
        return s.reshape(len(s), layer.groups, layer.out_channels // layer.groups, -1).mT


class EmbeddingRule(LayerRule):
    """``nn.Embedding`` on ``(B, *)`` indices."""

    def covers(self, layer: nn.Embedding) -> bool:
        return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse

    def one_by_one(self, layer: nn.Embedding, a: Tensor, s: Tensor) -> Gradients:
        ids, s = self._flat(layer, a, s)
        out = s.new_zeros(len(a), layer.num_embeddings, layer.embedding_dim)
        return {"weight": out.scatter_add_(1, ids[..., None].expand_as(s), s)}

    def contribution(self, layer: nn.Embedding, a: Tensor, s: Tensor, *, clip: float) -> Contribution:
        return _Looked(*self._flat(layer, a, s), layer.num_embeddings)

    def floats(self, layer: nn.Embedding, a: Tensor) -> int:
        return 2 * layer.embedding_dim * math.prod(a.shape[1:])

    @staticmethod
    def _flat(layer: nn.Embedding, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        ids = a.reshape(len(a), math.prod(a.shape[1:]))
        s = s.reshape(len(a), ids.shape[1], layer.embedding_dim)
        return (ids, s) if layer.padding_idx is None else (ids, s * (ids != layer.padding_idx)[..., None])


class _Looked(Contribution):
    """The rows of a table that each example looked up, a row once per example: repeated tokens are added up first."""

    def __init__(self, ids: Tensor, s: Tensor, tokens: int) -> None:
        self._tokens = tokens
        places = torch.arange(len(ids), device=ids.device)[:, None] * tokens + ids
        found, inverse = torch.unique(places, return_inverse=True)
        self._example, self._token = found // tokens, found % tokens
        empty = s.new_zeros(len(found), s.shape[-1], dtype=torch.float64)
        self._rows = empty.index_add_(0, inverse.flatten(), s.flatten(0, 1).double())
        squares = self._rows.square().sum(1)
        self.square_norms = squares.new_zeros(len(ids)).index_add_(0, self._example, squares)

    def weighted_sum(self, factors: Tensor) -> Gradients:
        """Add every example's rows to the table."""
        total = self._rows.new_zeros(self._tokens, self._rows.shape[1])
        return {"weight": total.index_add_(0, self._token, self._rows * factors[self._example, None])}


class _NormRule(LayerRule):
    """Layers ``y = weight * normalised(x) + bias``: few parameters, so the gradients themselves are cheap."""

    def one_by_one(self, layer: Any, a: Tensor, s: Tensor) -> Gradients:
        found: Gradients = {}
        if layer.weight is not None:
            found["weight"] = self._reduce(layer, self._normalised(layer, a) * s)
        if layer.bias is not None:
            found["bias"] = self._reduce(layer, s)
        return found

    @abstractmethod
    def _normalised(self, layer: Any, a: Tensor) -> Tensor: ...

    @abstractmethod
    def _reduce(self, layer: Any, values: Tensor) -> Tensor: ...


class LayerNormRule(_NormRule):
    """``nn.LayerNorm``."""

    def _normalised(self, layer: nn.LayerNorm, a: Tensor) -> Tensor:
        return layer_norm(a, layer.normalized_shape, None, None, layer.eps)

    def _reduce(self, layer: nn.LayerNorm, values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, *layer.normalized_shape).sum(1)


class GroupNormRule(_NormRule):
    """``nn.GroupNorm``."""

    def _normalised(self, layer: nn.GroupNorm, a: Tensor) -> Tensor:
        return group_norm(a, layer.num_groups, None, None, layer.eps)

    def _reduce(self, layer: nn.GroupNorm, values: Tensor) -> Tensor:
        return values.reshape(len(values), layer.num_channels, -1).sum(2)


RULES: Mapping[type[nn.Module], LayerRule] = {
    nn.Linear: LinearRule(),
    nn.Conv2d: Conv2dRule(),
    nn.Embedding: EmbeddingRule(),
    nn.LayerNorm: LayerNormRule(),
    nn.GroupNorm: GroupNormRule(),
}
