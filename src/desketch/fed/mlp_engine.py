"""MlpEngine: a cohort of multi-layer perceptrons trained by batched matrix products, weights updated in place.

For z_l = a_{l-1} W_lᵀ + b_l, a_l = φ(z_l), softmax cross-entropy averaged over B examples:

    G_L = (softmax(z_L) - onehot(y)) / B,      G_{l-1} = (G_l W_l) ∘ φ'(z_{l-1}),
    W_l -= eta G_lᵀ a_{l-1},                   b_l -= eta 1ᵀG_l

Each line is one ``baddbmm`` over the clients of a chunk; no gradient is ever stored, and a chunk stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from desketch.core.flat import FlatModel
from desketch.core.vectors import empty_rows
from desketch.fed.engine import BatchedEngine, batches
from desketch.fed.local import ClientData

__all__ = ["MlpEngine", "is_mlp"]


def _relu_slope(a: Tensor, g: Tensor) -> Tensor:
    return g.masked_fill_(a <= 0, 0.0)


def _tanh_slope(a: Tensor, g: Tensor) -> Tensor:
    return g.mul_(1 - a * a)


def _sigmoid_slope(a: Tensor, g: Tensor) -> Tensor:
    return g.mul_(a * (1 - a))


# φ in place, and g ∘ φ'(z) from the output a = φ(z)
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu_, _relu_slope),
    nn.Tanh: (torch.tanh_, _tanh_slope),
    nn.Sigmoid: (torch.sigmoid_, _sigmoid_slope),
}


def is_mlp(model: FlatModel) -> bool:
    """Whether the module is Flatten? (Linear, activation)* Linear with softmax cross-entropy, all trainable."""
    module = model.module
    if not isinstance(module, nn.Sequential) or model.batch_loss is not cross_entropy:
        return False
    layers = [layer for i, layer in enumerate(module) if not (i == 0 and type(layer) is nn.Flatten)]
    alternate = all(
        type(layer) is nn.Linear if i % 2 == 0 else type(layer) in _ACTIVATIONS for i, layer in enumerate(layers)
    )
    return alternate and len(layers) % 2 == 1 and all(p.requires_grad for p in module.parameters())


class MlpEngine(BatchedEngine):
    """Hand-written back-propagation for `is_mlp` modules (softmax regression has no hidden layer)."""

    copies = 24  # chunks of under 3 MB: the clients' weights and batches stay in the last cache

    def __init__(self, model: FlatModel) -> None:
        super().__init__(model)
        named = list(model.module.named_children())
        self._linear = [name for name, layer in named if isinstance(layer, nn.Linear)]
        self._phi = [_ACTIVATIONS[type(layer)] for _, layer in named if type(layer) in _ACTIVATIONS]

    def train(self, w: Tensor, clients: Sequence[ClientData], index: Tensor, eta: float) -> Tensor:
        """K steps; ``u`` is the flat memory that the layers' views write to."""
        u = empty_rows(len(clients), w).copy_(w)
        views = self.model.unflatten(u)
        layers = [(views[f"{name}.weight"], views.get(f"{name}.bias")) for name in self._linear]
        for x, y in batches(clients, index):
            self._step(layers, x.flatten(2), y, eta)
        return u.sub_(w)

    def _step(self, layers: list[tuple[Tensor, Tensor | None]], x: Tensor, y: Tensor, eta: float) -> None:
        activations = [x]
        for i, (W, bias) in enumerate(layers):
            z = torch.bmm(activations[-1], W.mT)
            if bias is not None:
                z += bias[:, None]
            activations.append(self._phi[i][0](z) if i < len(self._phi) else z)
        G = activations.pop().softmax(-1)
        G.scatter_add_(-1, y[..., None], G.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        G /= y.shape[1]
        for i in reversed(range(len(layers))):
            (W, bias), a = layers[i], activations[i]
            G_below = self._phi[i - 1][1](a, torch.bmm(G, W)) if i else G
            W.baddbmm_(G.mT, a, alpha=-eta)
            if bias is not None:
                bias.sub_(G.sum(1), alpha=eta)
            G = G_below
