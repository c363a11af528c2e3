"""Curvature of a task's loss: the constants that plans need, estimated from a model and its data.

* L = λ_max of the Hessian, by Lanczos with full re-orthogonalisation;
* tr(H), by Hutchinson's estimator: E[vᵀHv] = tr(H) for independent signs v;
* sigma_star² = (1/N) sum_c |∇f_c(w) - ∇f(w)|², exact at the optimum, where ∇f = 0; zeta, the larger of that and the
  same at the start;
* nu² = the variance of a mini-batch gradient at w, from sampled batches;
* |w⁰ - w*|, by the way that w has come: w* itself is not known.

Hessian-vector products are exact (a gradient of the gradient); nothing of size d² is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from desketch.core.flat import FlatModel
from desketch.errors import InputError

__all__ = ["HOW", "Curvature", "estimate_curvature", "hutchinson", "lanczos"]

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Curvature:
    """Estimates at one point w, and the distance it has come; ``gradient_square`` is |∇f(w⁰)|²."""

    L: float
    trace_ratio: float
    sigma_star: float
    zeta: float
    gradient_noise: float
    distance: float
    gap: float
    G: float
    gradient_square: float
    d: int
    N: int


HOW: dict[str, str] = {
    "L": "largest |eigenvalue| of the Hessian of the mean loss, by Lanczos at the start and at the end",
    "trace_ratio": "trace of the Hessian at the end by Hutchinson, 32 probes, over its largest eigenvalue",
    "sigma_star": "spread of the clients' gradients at the end, taken for the optimum",
    "zeta": "spread of the clients' gradients, the larger of start and end, taken for a bound everywhere",
    "gradient_noise": "root mean square error of sampled mini-batch gradients at the end",
    "distance": "|end - start|, taken for |w0 - w*|",
    "gap": "loss at the start: the least loss is not known, and not negative",
    "G": "largest gradient norm of a client at the start and at the end, taken for a bound everywhere",
    "d": "trainable parameters",
    "N": "clients with data",
}


def lanczos(product: Product, d: int, *, steps: int = 24, seed: int = 0) -> float:
    """The largest |eigenvalue| of a symmetric d x d operator, from a Krylov space of ``steps`` dimensions."""
    generator = torch.Generator().manual_seed(seed)
    basis = [torch.nn.functional.normalize(torch.randn(d, generator=generator, dtype=torch.float64), dim=0)]
    steps = min(steps, d)
    tridiagonal = torch.zeros(steps, steps, dtype=torch.float64)
    for i in range(steps):
        v = product(basis[i]).double()
        tridiagonal[i, i] = v @ basis[i]
        for q in (*basis, *basis):  # twice is enough
            v = v - (v @ q) * q
        size = float(v.norm())
        if i + 1 == steps or size < 1e-10 * max(1.0, float(tridiagonal.abs().max())):
            return float(torch.linalg.eigvalsh(tridiagonal[: i + 1, : i + 1]).abs().max())
        tridiagonal[i, i + 1] = tridiagonal[i + 1, i] = size
        basis.append(v / size)
    raise AssertionError("unreachable: the loop returns at its last step")


def hutchinson(product: Product, d: int, *, probes: int = 32, seed: int = 0) -> float:
    """Trace of a symmetric d x d operator: the mean of vᵀHv over sign vectors."""
    generator = torch.Generator().manual_seed(seed)
    signs = (torch.randint(0, 2, (d,), generator=generator) * 2.0 - 1.0 for _ in range(probes))
    return sum(float(v.double() @ product(v.double()).double()) for v in signs) / probes


def estimate_curvature(
    model: FlatModel,
    w0: Tensor,
    w: Tensor,
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    examples: int = 2048,
    batch: int | None = None,
) -> Curvature:
    """Estimate at ``w`` (and at ``w0`` for L), from at most ``examples`` of all data; ``batch`` is a local step's."""
    if not clients:
        raise InputError("no client has any data; check the partition")
    x, y = (torch.cat(parts) for parts in zip(*clients, strict=True))
    pick = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:examples]
    x, y = x[pick], y[pick]

    def product_at(point: Tensor) -> Product:
        leaf = point.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(model.loss(leaf, x, y), leaf, create_graph=True)
        return lambda v: torch.autograd.grad(g, leaf, v.to(leaf.dtype), retain_graph=True)[0]

    top = lanczos(product_at(w), model.d)
    trace = hutchinson(product_at(w), model.d)
    start, end = (torch.stack([model.gradient(p, cx, cy) for cx, cy in clients]) for p in (w0, w))
    return Curvature(
        L=max(top, lanczos(product_at(w0), model.d)),
        trace_ratio=min(max(trace / top, 1.0), float(model.d)),
        sigma_star=_spread(end),
        zeta=max(_spread(start), _spread(end)),
        gradient_noise=_batch_noise(model, w, clients, end, batch) if batch else 0.0,
        distance=float((w - w0).norm()),
        gap=model.evaluate(w0, x, y)["loss"],  # none of the losses is ever negative
        G=float(torch.cat([start, end]).norm(dim=1).max()),
        gradient_square=float(start.mean(0).square().sum()),
        d=model.d,
        N=len(clients),
    )


def _spread(gradients: Tensor) -> float:
    return float((gradients - gradients.mean(0)).square().sum(1).mean().sqrt())


def _batch_noise(
    model: FlatModel, w: Tensor, clients: Sequence[tuple[Tensor, Tensor]], full: Tensor, batch: int, draws: int = 32
) -> float:
    """Root mean square of |batch gradient - the client's gradient| over ``draws`` batches of clients in turn."""
    generator = torch.Generator().manual_seed(1)
    errors = []
    for i in range(draws):
        c = i % len(clients)
        x, y = clients[c]
        pick = torch.randperm(len(y), generator=generator)[:batch]
        errors.append(float((model.gradient(w, x[pick], y[pick]) - full[c]).square().sum()))
    return float(sum(errors) / draws) ** 0.5
