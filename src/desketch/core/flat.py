"""FlatModel: a torch module seen as a function of one flat vector w in R^d, as the paper's f_c(w) is.

Trainable parameters are laid out in the module's own order; frozen ones stay constants.  The loss of a batch is any
``loss(output, y)`` that averages over the examples.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.dropout import _DropoutNd

from desketch.errors import InputError

__all__ = ["FlatModel", "FlatParameters", "Loss", "Watch"]

Loss = Callable[[Tensor, Tensor], Tensor]
Watch = Callable[[Tensor, Tensor], None]


class FlatParameters:
    """The trainable parameters of a module as one vector w, in the module's own order."""

    def __init__(self, module: nn.Module, *, local_statistics: bool = False) -> None:
        self.module = module
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        _refuse(module, trainable, local_statistics=local_statistics)
        self.names = [name for name, _ in trainable]
        self.shapes = [tuple(p.shape) for _, p in trainable]
        self.sizes = [prod(shape) for shape in self.shapes]
        self.d = sum(self.sizes)
        self._resting = False

    def flatten(self, cut: slice = slice(None)) -> Tensor:
        """A copy of the module's current parameters as w, or of a part of it that is not empty."""
        parameters = dict(self.module.named_parameters())
        start, stop, _ = cut.indices(self.d)
        ends = list(accumulate(self.sizes))
        pieces = [
            parameters[name].detach().reshape(-1)[max(start - end + size, 0) : max(stop - end + size, 0)]
            for name, size, end in zip(self.names, self.sizes, ends, strict=True)
            if start < end and end - size < stop
        ]
        return torch.cat(pieces)

    def rest_on(self, w: Tensor) -> None:
        """Let the module's parameters be views of w, without memory of their own, until `load` gives it them again."""
        parameters = dict(self.module.named_parameters())
        for name, value in self.unflatten(w).items():
            parameters[name].data = value
        self._resting = True

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """Views of ``w (..., d)`` by parameter name, each ``(..., *shape)``."""
        parts = torch.split(w, self.sizes, dim=-1)
        return {
            name: part.view(*w.shape[:-1], *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def load(self, w: Tensor) -> nn.Module:
        """Write w into the module and return it."""
        if self._resting:  # what it rests on is somebody else's
            self.rest_on(torch.empty_like(w))
            self._resting = False
        parameters = dict(self.module.named_parameters())
        with torch.no_grad():
            for name, value in self.unflatten(w).items():
                parameters[name].copy_(value)
        return self.module


class FlatModel(FlatParameters):
    """A module and its loss as functions of ``w``: `loss`, `predict`, `unflatten`, `evaluate`."""

    def __init__(self, module: nn.Module, loss: Loss = cross_entropy, *, local_statistics: bool = False) -> None:
        super().__init__(module.train(), local_statistics=local_statistics)
        self.batch_loss = loss
        self.local_statistics = local_statistics

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return next(self.module.parameters()).device

    @property
    def draws_noise(self) -> bool:
        """Whether a training forward is random (dropout)."""
        return any(isinstance(m, _DropoutNd) and m.p > 0 for m in self.module.modules())

    def predict(self, w: Tensor, x: Tensor) -> Tensor:
        """The module's output at w."""
        return functional_call(self.module, self.unflatten(w), (x,))

    def loss(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch at w."""
        return self.batch_loss(self.predict(w, x), y)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of `loss` in w, as one flat vector."""
        leaf = w.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(self.loss(leaf, x, y), leaf)
        return g

    @torch.no_grad()
    def evaluate(
        self, w: Tensor, x: Tensor, y: Tensor, *, watch: Watch = lambda output, y: None, batch: int = 2048
    ) -> dict[str, float]:
        """Mean loss of w on (x, y), without dropout; ``watch`` sees output and labels of each batch, for metrics."""
        self.module.eval()
        loss = 0.0
        for xs, ys in zip(torch.split(x, batch), torch.split(y, batch), strict=True):
            output = self.predict(w, xs)
            loss += float(self.batch_loss(output, ys)) * len(ys)
            watch(output, ys)
        self.module.train()
        return {"loss": loss / len(y)}


def _refuse(module: nn.Module, trainable: list[tuple[str, nn.Parameter]], *, local_statistics: bool) -> None:
    """Refuse what a sketch of parameter changes cannot carry."""
    if not trainable:
        raise InputError(f"{type(module).__name__} has no trainable parameter; unfreeze at least one")
    for name, child in module.named_modules():
        if getattr(child, "track_running_stats", False) and not local_statistics:
            raise InputError(
                f"layer {name or 'module'} ({type(child).__name__}) keeps running statistics, not parameters: "
                "they would differ between replicas; use GroupNorm (or LayerNorm, or track_running_stats=False), or "
                'keep them with each client: federate(..., statistics="local")'
            )
    for name, p in trainable:
        if p.dtype != torch.float32:
            raise InputError(f"parameter {name} has dtype {p.dtype}; sketches carry float32: call module.float() first")
