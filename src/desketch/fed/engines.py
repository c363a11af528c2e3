"""`make_engine`: the fastest engine that can train a model, by trying them in order."""

from __future__ import annotations

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.fed.engine import Engine, LoopEngine, VmapEngine
from desketch.fed.mechanism import Privacy
from desketch.fed.mlp_engine import MlpEngine, is_mlp
from desketch.fed.model import FlatModel

__all__ = ["ENGINES", "make_engine"]

ENGINES = ("auto", "mlp", "vmap", "loop")


def make_engine(
    model: FlatModel, sample: tuple[Tensor, Tensor], *, name: str = "auto", privacy: Privacy | None = None
) -> Engine:
    """Build an engine; ``sample`` is any small batch (x, y), on which torch.func is tried once."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    if name == "loop" or model.draws_noise or (privacy and privacy.step):
        return LoopEngine(model, privacy)
    if name in ("auto", "mlp") and is_mlp(model):
        return MlpEngine(model)
    if name == "mlp":
        raise InputError("engine 'mlp' trains Sequential(Flatten?, Linear, activation, ..., Linear); use 'auto'")
    return VmapEngine(model) if _maps(model, sample) else LoopEngine(model, privacy)


def _maps(model: FlatModel, sample: tuple[Tensor, Tensor]) -> bool:
    """Whether torch.func can map this model's gradient over clients; data-dependent control flow cannot be mapped."""
    x, y = (part[None] for part in sample)
    try:
        torch.func.vmap(torch.func.grad(model.loss))(model.flatten()[None], x, y)
    except RuntimeError:
        return False
    return True
