"""Per-example gradients of single layers from what flows into and out of them.

For a layer with input ``a`` and gradient ``s`` of the summed loss at its output, row ``i`` of both belongs to example
``i`` alone, so the gradient of example ``i`` is a small product of ``a_i`` and ``s_i``: ``s_i a_i^T`` for a linear
layer.  Its norm often needs no gradient at all, ``|s_i a_i^T| = |s_i| |a_i|`` (Goodfellow 2015), or a Gram matrix over
the positions of a sequence or an image; and the clipped sum is one product once ``s_i`` is scaled ("book-keeping",
Bu, Wang, Zha, Karypis 2023).

A rule answers three questions: the squared norms ``(B,)``, the sum over the batch, and the gradients one by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm, layer_norm, unfold
from torch.nn.grad import conv2d_weight

__all__ = ["RULES", "LayerRule"]

Gradients = dict[str, Tensor]


class LayerRule(ABC):
    """Gradients of one kind of layer; ``a``: its input, ``s``: the loss gradient at its output."""

    def covers(self, layer: Any) -> bool:
        """Whether this configuration of the layer is handled."""
        return True

    @abstractmethod
    def one_by_one(self, layer: Any, a: Tensor, s: Tensor) -> Gradients:
        """Return every example's gradient, ``(B, *parameter.shape)`` by parameter name."""

    def square_norms(self, layer: Any, a: Tensor, s: Tensor) -> Tensor:
        """Return ``(B,)`` squared norms over all parameters of the layer."""
        return sum_of_squares(self.one_by_one(layer, a, s))

    def total(self, layer: Any, a: Tensor, s: Tensor) -> Gradients:
        """Return the gradients summed over the batch."""
        return {name: g.sum(0) for name, g in self.one_by_one(layer, a, s).items()}


def sum_of_squares(gradients: Gradients) -> Tensor:
    """Return ``(B,)``: per example, the squared norm over all entries of all parameters."""
    return torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)


def _gram_norms(a: Tensor, s: Tensor) -> Tensor:
    """Squared norms of ``sum_t s_t a_t^T`` for ``(..., T, i)`` and ``(..., T, o)``, by the cheaper of two ways."""
    T, i, o = a.shape[-2], a.shape[-1], s.shape[-1]
    if T * (i + o) < i * o:
        return ((a @ a.mT) * (s @ s.mT)).sum((-1, -2)).clamp(min=0.0)
    return (s.mT @ a).square().sum((-1, -2))


class LinearRule(LayerRule):
    """``nn.Linear`` on ``(B, *, in)``."""

    def one_by_one(self, layer: nn.Linear, a: Tensor, s: Tensor) -> Gradients:
        a, s = a.flatten(1, -2) if a.dim() > 2 else a[:, None], s.flatten(1, -2) if s.dim() > 2 else s[:, None]
        weight = {"weight": s.mT @ a}
        return weight if layer.bias is None else weight | {"bias": s.sum(1)}

    def square_norms(self, layer: nn.Linear, a: Tensor, s: Tensor) -> Tensor:
        if a.dim() == 2:
            return s.square().sum(1) * (a.square().sum(1) + (0.0 if layer.bias is None else 1.0))
        a, s = a.flatten(1, -2), s.flatten(1, -2)
        norms = _gram_norms(a, s)
        return norms if layer.bias is None else norms + s.sum(1).square().sum(1)

    def total(self, layer: nn.Linear, a: Tensor, s: Tensor) -> Gradients:
        a, s = a.flatten(0, -2), s.flatten(0, -2)
        weight = {"weight": s.mT @ a}
        return weight if layer.bias is None else weight | {"bias": s.sum(0)}


class Conv2dRule(LayerRule):
    """``nn.Conv2d``, grouped or not, with zero padding given as numbers."""

    def covers(self, layer: nn.Conv2d) -> bool:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    def one_by_one(self, layer: nn.Conv2d, a: Tensor, s: Tensor) -> Gradients:
        patches, s_grouped = self._patches(layer, a), self._grouped(layer, s)
        weight = {"weight": (s_grouped.mT @ patches).reshape(len(a), *layer.weight.shape)}
        return weight if layer.bias is None else weight | {"bias": s.sum((2, 3))}

    def square_norms(self, layer: nn.Conv2d, a: Tensor, s: Tensor) -> Tensor:
        norms = _gram_norms(self._patches(layer, a), self._grouped(layer, s)).sum(1)
        return norms if layer.bias is None else norms + s.sum((2, 3)).square().sum(1)

    def total(self, layer: nn.Conv2d, a: Tensor, s: Tensor) -> Gradients:
        geometry: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)
        weight = {"weight": conv2d_weight(a, layer.weight.shape, s, *geometry)}  # type: ignore[no-untyped-call]
        return weight if layer.bias is None else weight | {"bias": s.sum((0, 2, 3))}

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

    def square_norms(self, layer: nn.Embedding, a: Tensor, s: Tensor) -> Tensor:
        ids, s = self._flat(layer, a, s)
        same = ids[:, :, None] == ids[:, None, :]
        return ((s @ s.mT) * same).sum((1, 2)).clamp(min=0.0)

    def total(self, layer: nn.Embedding, a: Tensor, s: Tensor) -> Gradients:
        ids, s = self._flat(layer, a, s)
        out = s.new_zeros(layer.num_embeddings, layer.embedding_dim)
        return {"weight": out.index_add_(0, ids.flatten(), s.flatten(0, 1))}

    @staticmethod
    def _flat(layer: nn.Embedding, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        ids = a.reshape(len(a), math.prod(a.shape[1:]))
        s = s.reshape(len(a), ids.shape[1], layer.embedding_dim)
        return (ids, s) if layer.padding_idx is None else (ids, s * (ids != layer.padding_idx)[..., None])


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
