"""Per-example gradients: their clipped sum without forming them, or the gradients one by one.

`PerExample` takes one forward pass and one backward pass *to the layers' outputs*; `layer_rules` turns what flows
through each layer into norms and clipped sums.  Where a layer has no rule, a parameter is shared, a layer runs twice,
or the model computes in float64, ``vmap(grad)`` does the same work directly; it is also the oracle of the tests.

What is bounded: the norm of what each example adds to the sum, as it is added.  Norms are upper bounds and sums are
formed in float64 (`contributions`), every norm is held a part in 10^5 below C, and that covers the rounding of the sum.

Examples must not meet inside the model: a BatchNorm in training mode has no per-example gradient and is refused.
Gradients are flat ``d``-vectors over the trainable parameters, in the order of ``model.named_parameters()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from desketch.errors import InputError
from desketch.privacy.clip import check_clip, clip_rows
from desketch.privacy.layer_rules import RULES, LayerRule

__all__ = ["PerExample"]

Loss = Callable[[Tensor, Tensor], Tensor]
_Flow = tuple[str, LayerRule, nn.Module, Tensor, Tensor]  # prefix of its names, rule, layer, a, s
_Record = tuple[str, nn.Module, Tensor, Tensor, tuple[int, int]]  # name, layer, input, output, their versions
_CHUNK = 64  # examples per vmap: bounds memory at 64 d floats
_HELD = 1 << 26  # numbers that the book-keeping of one part of a batch may hold
_MARGIN = 1e-5  # relative; pays for the rounding of norms and sums in float64


class _NeedsVmapError(Exception):
    """Book-keeping met something it cannot do; the caller falls back."""


class PerExample:
    """Per-example gradients of ``loss(model(x), y)`` at flat weights ``w``; ``loss`` averages over its batch."""

    def __init__(self, model: nn.Module, loss: Loss = cross_entropy) -> None:
        self._model = model
        self._loss = loss
        self._shapes = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.book_keeping = _covered(model)

    def clipped_sum(self, w: Tensor, x: Tensor, y: Tensor, *, clip: float) -> Tensor:
        """Return ``sum_i g_i min(1, clip / |g_i|)``, ``d`` float64 numbers; an empty batch sums to zero."""
        check_clip(clip, w.dtype)
        _refuse_batch_norm(self._model)
        if len(x) == 0:
            return torch.zeros_like(w, dtype=torch.float64)
        if self.book_keeping:
            try:
                return self._book_kept_sum(w, x, y, clip)
            except _NeedsVmapError:
                self.book_keeping = False
        chunks = zip(torch.split(x, _CHUNK), torch.split(y, _CHUNK), strict=True)
        total = torch.zeros_like(w, dtype=torch.float64)
        for a, b in chunks:
            for row in self._by_vmap(w, a, b):  # one at a time: what clipping holds then stays in the cache
                total += clip_rows(row, clip)
        return total

    def gradients(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the ``(B, d)`` gradients one by one."""
        _refuse_batch_norm(self._model)
        if len(x) == 0:
            return w.new_zeros(0, w.numel())
        if self.book_keeping:
            try:
                flows = self._flows(w, x, y)
                found = {f"{prefix}{n}": g for prefix, r, m, a, s in flows for n, g in r.one_by_one(m, a, s).items()}
                return torch.cat([found[name].flatten(1) for name in self._shapes], dim=1)
            except _NeedsVmapError:
                self.book_keeping = False
        chunks = zip(torch.split(x, _CHUNK), torch.split(y, _CHUNK), strict=True)
        return torch.cat([self._by_vmap(w, a, b) for a, b in chunks])

    def _book_kept_sum(self, w: Tensor, x: Tensor, y: Tensor, clip: float) -> Tensor:
        flows = self._flows(w, x, y)
        if any(s.dtype == torch.float64 for *_, s in flows):
            raise _NeedsVmapError  # nothing wider is left to bound its rounding with
        size = max(1, _HELD // max(1, sum(rule.floats(layer, a) for _, rule, layer, a, _ in flows)))
        parts = (_clipped_part(flows, slice(i, i + size), clip) for i in range(0, len(x), size))
        total = reduce(lambda sums, more: {name: sums[name].add_(more[name]) for name in sums}, parts)
        return torch.cat([total[name].flatten() for name in self._shapes])

    def _flows(self, w: Tensor, x: Tensor, y: Tensor) -> list[_Flow]:
        """Run once forward and once back to every layer's output; return (prefix, rule, layer, a, s) of each."""
        with torch.enable_grad(), _recorder(self._model) as records:
            outputs = functional_call(self._model, self._parameters(w.detach().requires_grad_()), (x,))
            total = self._loss(outputs, y) * len(x)
        layers = [name for name, m in self._model.named_modules() if _trainable(m)]
        versions_hold = all((a._version, out._version) == versions for _, _, a, out, versions in records)
        if sorted(name for name, *_ in records) != sorted(layers) or not versions_hold:
            raise _NeedsVmapError
        flowing = torch.autograd.grad(total, [out for *_, out, _ in records])
        return [
            (f"{name}." if name else "", RULES[type(layer)], layer, a.detach(), s)
            for (name, layer, a, _, _), s in zip(records, flowing, strict=True)
        ]

    def _by_vmap(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        def loss_of_one(flat: Tensor, one_x: Tensor, one_y: Tensor) -> Tensor:
            outputs = functional_call(self._model, self._parameters(flat), (one_x[None],))
            return self._loss(outputs, one_y[None])

        return vmap(grad(loss_of_one), in_dims=(None, 0, 0), randomness="different")(w.detach(), x, y)

    def _parameters(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, self._sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


def _clipped_part(flows: Sequence[_Flow], part: slice, clip: float) -> dict[str, Tensor]:
    """The clipped sum over some examples, by parameter name."""
    kept = [(prefix, rule.contribution(layer, a[part], s[part], clip=clip)) for prefix, rule, layer, a, s in flows]
    factors = _factors(torch.stack([contribution.square_norms for _, contribution in kept]).sum(0).sqrt(), clip)
    return {f"{prefix}{name}": g for prefix, one in kept for name, g in one.weighted_sum(factors).items()}


def _factors(norms: Tensor, clip: float) -> Tensor:
    bad = int((~torch.isfinite(norms)).sum())
    if bad:
        raise InputError(
            f"{bad} of {norms.numel()} per-example gradients hold NaN or infinity; nothing bounds them, so nothing is "
            "released. Lower the step size, or check the data"
        )
    return (clip * (1 - _MARGIN) / norms).clamp(max=1.0)


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters(recurse=False) if p.requires_grad]


def _covered(model: nn.Module) -> bool:
    """Whether every trainable parameter has one layer, which has a rule and no frozen parameter beside it."""
    owners = [module for module in model.modules() if _trainable(module)]
    seen = [id(p) for module in owners for p in _trainable(module)]
    mixed = any(len(_trainable(module)) != len(list(module.parameters(recurse=False))) for module in owners)
    ruled = all((rule := RULES.get(type(module))) is not None and rule.covers(module) for module in owners)
    return len(set(seen)) == len(seen) and ruled and not mixed


def _refuse_batch_norm(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise InputError(
                f"{name or 'the model'} is a BatchNorm in training mode: it mixes examples, so no per-example gradient "
                "exists. Use GroupNorm or LayerNorm"
            )


@contextmanager
def _recorder(model: nn.Module) -> Iterator[list[_Record]]:
    """Record every layer with trainable parameters; versions betray an input or output changed in place later on."""
    records: list[_Record] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(layer: nn.Module, inputs: Any, output: Any) -> None:
            records.append((name, layer, inputs[0], output, (inputs[0]._version, output._version)))

        return record

    handles = [m.register_forward_hook(hook(name)) for name, m in model.named_modules() if _trainable(m)]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()
