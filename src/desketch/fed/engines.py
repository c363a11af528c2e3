"""`make_engine`: the fastest engine that can train a model; the choice depends on the model alone.

A timed choice would be faster now and then, but a resumed run must make the same one: engines agree to rounding only.
Convolutions go to the loop: with weights of their own per client they become grouped convolutions, twice as slow on
CPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from desketch.core.flat import FlatModel
from desketch.errors import InputError
from desketch.fed.engine import Engine, LoopEngine, VmapEngine
from desketch.fed.local import Visit
from desketch.fed.mechanism import Privacy
from desketch.fed.mlp_engine import MlpEngine, is_mlp

__all__ = ["ENGINES", "make_engine"]

ENGINES = ("auto", "mlp", "vmap", "loop")


def make_engine(
    model: FlatModel,
    sample: tuple[Tensor, Tensor],
    *,
    name: str = "auto",
    privacy: Privacy | None = None,
    visit: Visit | None = None,
) -> Engine:
    """Build an engine; ``sample`` is any small batch (x, y), on which torch.func is tried once.

    Only the loop can show its local iterates to ``visit``.
    """
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    if visit and name not in ("auto", "loop"):
        raise InputError(f"engine {name!r} does not show the clients' local iterates; use 'auto' or 'loop'")
    if name == "loop" or visit or model.draws_noise or (privacy and privacy.step):
        return LoopEngine(model, privacy.step if privacy else None, visit)
    if name in ("auto", "mlp") and is_mlp(model):
        return MlpEngine(model)
    if name == "mlp":
        raise InputError("engine 'mlp' trains Sequential(Flatten?, Linear, activation, ..., Linear); use 'auto'")
    convolves = any(isinstance(layer, _ConvNd) for layer in model.module.modules())
    mapped = _maps(model, sample) and (name == "vmap" or not convolves)
    return VmapEngine(model) if mapped else LoopEngine(model)


def _maps(model: FlatModel, sample: tuple[Tensor, Tensor]) -> bool:
    """Whether torch.func can map this model's gradient over clients; data-dependent control flow cannot be mapped."""
    x, y = (part[None] for part in sample)
    try:
        torch.func.vmap(torch.func.grad(model.loss))(model.flatten()[None], x, y)
    except RuntimeError:
        return False
    return True
