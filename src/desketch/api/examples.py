"""What clients bring, looked at before anything starts: kinds, shapes, types and labels that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from desketch.api.client import Client
from desketch.core.flat import FlatModel
from desketch.core.on_demand import looked_at
from desketch.errors import InputError
from desketch.fed.client import Participant

__all__ = ["check_kind", "is_tensors", "kind_of", "try_model"]


def check_kind(place: int, client: object) -> None:
    """Refuse what is no client."""
    if not isinstance(client, Client | Participant):
        raise InputError(
            f"clients[{place}] is a {type(client).__name__}; give desketch.Client(...), or an object with an "
            "id `client` and a method `update(w, t)`"
        )


def is_tensors(client: object) -> bool:
    """Whether an engine can train it together with others of its kind."""
    return isinstance(client, Client) and client.has_tensors and not client.keep_optimizer


def kind_of(x: Tensor, y: Tensor) -> tuple[object, ...]:
    """The shape and type of one example and its label."""
    return x.shape[1:], x.dtype, y.shape[1:], y.dtype


def try_model(
    model: FlatModel,
    loss: Callable[..., Tensor] | None,
    sample: tuple[Tensor, Tensor],
    clients: Sequence[Client | Participant],
    *,
    first: int = 0,
) -> None:
    """One forward pass on the sample of client ``first``, and a look at the labels of it and those after it."""
    x, y = sample
    try:
        with torch.no_grad():
            output = model.module(x)
            if loss is nn.functional.cross_entropy and not y.is_floating_point():
                _check_labels(clients, int(output.shape[1]), first)
            value = model.batch_loss(output, y)
    except InputError:  # it says itself whose labels do not fit
        raise
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise InputError(
            f"the model or the loss does not take the examples of client {first}, x {tuple(x.shape)} {x.dtype} and "
            f"y {tuple(y.shape)} {y.dtype}: {str(error).splitlines()[0]}"
        ) from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError("loss(output, y) must return one number, the mean over the batch")


def _check_labels(clients: Sequence[Client | Participant], classes: int, first: int) -> None:
    for place, client in enumerate(looked_at(clients), start=first):
        if not isinstance(client, Client) or not len(client.y):
            continue
        low, high = int(client.y.min()), int(client.y.max())
        if not 0 <= low <= high < classes:
            raise InputError(
                f"client {place} has labels {low}..{high}, the model tells 0..{classes - 1} apart; number the labels "
                "from 0, or give the model an output for each"
            )
