"""G(x): the update in R^d that a client computes from its private data x, and its derivative in x.

The paper attacks K = 1, where G(x) = ∇_w F(w, x).  The same object covers what a run really sends: K known local
steps unrolled (``w_K - w_0``), batches, per-example clipping, and the average of several clients.  Its derivative is
the pseudo-Hessian Φ(x, w) = ∇_x ∇_w F (Definition "Pseudo-Hessian"), an m x d matrix.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn.functional import cross_entropy

from desketch.errors import InputError

__all__ = ["LocalUpdate", "Loss"]

Loss = Callable[[Tensor, Tensor], Tensor]

_CHUNK = 128  # tangents pushed at once: more only costs memory


@dataclass(frozen=True)
class LocalUpdate:
    """The map x -> G(x), known to the attacker up to x; x is flat, of ``unknowns`` numbers, in float64.

    Args:
        model: the network; only its structure is used, the weights are an argument of every call.
        shape: shape of one example.
        loss: ``(outputs, targets) -> mean loss``.
        batch: examples of one client that enter every local step.
        clients: how many clients' updates are averaged before the attacker sees them.
        K: local steps.
        eta_local: local step size.  None sends the gradient itself (then K must be 1); a number sends w_K - w_0.
        schedule: which examples each local step uses, as K index lists; None uses all of them at every step.
        clip: per-example bound on the gradient norm, or None.

    """

    model: nn.Module
    shape: tuple[int, ...]
    loss: Loss = cross_entropy
    batch: int = 1
    clients: int = 1
    K: int = 1
    eta_local: float | None = None
    schedule: Sequence[Sequence[int]] | None = None
    clip: float | None = None
    _names: tuple[str, ...] = field(init=False, repr=False)
    _shapes: tuple[torch.Size, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.K < 1 or self.batch < 1 or self.clients < 1:
            raise InputError(f"K, batch and clients must be positive, got {self.K}, {self.batch}, {self.clients}")
        if self.eta_local is None and self.K != 1:
            raise InputError(f"K={self.K} local steps need their step size: give eta_local")
        if self.schedule is not None and len(self.schedule) != self.K:
            raise InputError(f"the schedule has {len(self.schedule)} steps, K is {self.K}; give one index list a step")
        model = copy.deepcopy(self.model).double().eval()
        for p in model.parameters():
            p.requires_grad_(False)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "_names", tuple(name for name, _ in model.named_parameters()))
        object.__setattr__(self, "_shapes", tuple(p.shape for p in model.parameters()))

    @property
    def unknowns(self) -> int:
        """m: how many input numbers the attacker looks for."""
        return self.clients * self.batch * math.prod(self.shape)

    @property
    def d(self) -> int:
        """How many weights the model has."""
        return sum(math.prod(shape) for shape in self._shapes)

    @property
    def examples(self) -> int:
        """How many private examples are mixed in one update."""
        return self.clients * self.batch

    def weights(self) -> Tensor:
        """The model's own weights, flat, in float64."""
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def outputs(self, w: Tensor, x: Tensor) -> Tensor:
        """Model outputs at weights w for the examples in the flat x."""
        return self._forward(w, x.reshape(-1, *self.shape))

    def __call__(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """G(x) in R^d for targets y: one row per example (class index, class probabilities, or a regression value)."""
        xs = x.reshape(self.clients, self.batch, *self.shape)
        ys = y.reshape(self.clients, self.batch, *y.shape[1:])
        total = self._client(w, xs[0], ys[0])
        for c in range(1, self.clients):
            total = total + self._client(w, xs[c], ys[c])
        return total / self.clients

    def jacobian(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """G(x) and the pseudo-Hessian Φ as an (m, d) matrix: row i is ∂G/∂x_i."""

        def push(v: Tensor) -> Tensor:
            return jvp(lambda u: self(w, u, y), (x,), (v,))[1]

        basis = torch.eye(x.numel(), dtype=x.dtype)
        return self(w, x, y), vmap(push, chunk_size=_CHUNK)(basis)

    def pull(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """G(x) and the map v -> Φ v (one backward pass)."""
        g, back = vjp(lambda u: self(w, u, y), x)[:2]
        return g, lambda v: back(v)[0]

    def _client(self, w0: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if self.eta_local is None:
            return self._gradient(w0, x, y)
        w = w0
        for k in range(self.K):
            rows = slice(None) if self.schedule is None else list(self.schedule[k])
            w = w - self.eta_local * self._gradient(w, x[rows], y[rows])
        return w - w0

    def _gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if self.clip is None:
            return grad(self._loss)(w, x, y)
        clip = self.clip

        def clipped(x1: Tensor, y1: Tensor) -> Tensor:
            g = grad(self._loss)(w, x1[None], y1[None])
            norm = torch.sqrt(torch.sum(g * g) + torch.finfo(g.dtype).tiny)
            return g * torch.clamp(clip / norm, max=1.0)

        return vmap(clipped)(x, y).mean(0)

    def _loss(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self._forward(w, x), y)

    def _forward(self, w: Tensor, x: Tensor) -> Tensor:
        parts, at = {}, 0
        for name, shape in zip(self._names, self._shapes, strict=True):
            size = math.prod(shape)
            parts[name] = w[at : at + size].reshape(shape)
            at += size
        return functional_call(self.model, parts, (x,))
