"""The attacks users know, on the raw gradient, for comparison with ours on the sketch.

* DLG (Zhu, Liu, Han, "Deep leakage from gradients", NeurIPS 2019): L-BFGS on |∇F(x', y') - g|² over picture and soft
  label together, from Gaussian noise.
* Inverting gradients (Geiping, Bauermeister, Dröge, Moeller, NeurIPS 2020): signed Adam on 1 - cosine plus total
  variation, label known, box enforced, step lowered tenfold at 3/8, 5/8 and 7/8 of the iterations.

Written from the papers; both stop early when their own objective says that nothing is left to gain.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad_and_value

from desketch.attack.update import LocalUpdate

__all__ = ["KNOWN", "dlg", "inverting_gradients"]

Attack = Callable[[LocalUpdate, Tensor, Tensor, Tensor, int], Tensor]


def dlg(update: LocalUpdate, w: Tensor, g: Tensor, y: Tensor, seed: int, *, steps: int = 300) -> Tensor:
    """L-BFGS (step 1, 20 inner iterations) over (x, soft label logits); the true label is not used."""
    generator = torch.Generator().manual_seed(seed)
    m, classes = update.unknowns, update.outputs(w, torch.zeros(update.unknowns, dtype=torch.float64)).shape[-1]
    z = torch.randn(m + classes, generator=generator, dtype=torch.float64)

    def loss(z: Tensor) -> Tensor:
        return (update(w, z[:m], torch.softmax(z[m:], 0)[None]) - g).square().sum()

    derivative, optimiser = grad_and_value(loss), torch.optim.LBFGS([z])

    def closure() -> Tensor:
        z.grad, value = derivative(z)
        return value

    floor = 1e-12 * float(g.square().sum())
    for _ in range(steps):
        value = float(optimiser.step(closure))
        if not value > floor:
            break
    return z[:m].clone()


def inverting_gradients(
    update: LocalUpdate, w: Tensor, g: Tensor, y: Tensor, seed: int, *, steps: int = 4800, tv: float = 1e-6
) -> Tensor:
    """Signed Adam on the cosine distance with total variation; the label is given."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(update.unknowns, generator=generator, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        mine, picture = update(w, x, y), x.reshape(-1, *update.shape)
        variation = picture.diff(dim=-1).abs().mean() + picture.diff(dim=-2).abs().mean()
        return 1 - (mine @ g) / (mine.norm() * g.norm()) + tv * variation

    derivative, optimiser = grad_and_value(loss), torch.optim.Adam([x], lr=0.1)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimiser, [3 * steps // 8, 5 * steps // 8, 7 * steps // 8], 0.1)
    for _ in range(steps):
        gradient, value = derivative(x)
        if float(value) < 1e-10:
            break
        x.grad = gradient.sign()
        optimiser.step()
        decay.step()
        x.clamp_(0, 1)
    return x


KNOWN: dict[str, Attack] = {"DLG": dlg, "inverting gradients": inverting_gradients}
