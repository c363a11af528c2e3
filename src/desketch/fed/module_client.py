"""Participants that train the user's own module: any data, any loss, any torch optimiser, or any loop at all.

    load w into the module;  K times: batch, loss, backward, optimiser step;  Δ_c = module - w

One module serves all clients of a process, one after the other.  What belongs to a client alone stays with it: the
optimiser's state if it is kept, running statistics if they are local.  Everything random in a round (shuffles, dropout)
is drawn from torch's generator, seeded for this client and round and put back afterwards: a resumed run repeats it.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from desketch.core.batches import moved
from desketch.core.flat import FlatModel
from desketch.errors import InputError
from desketch.fed.local import LocalWork, batch_indices, stream
from desketch.fed.moments import second_moments

__all__ = ["BatchLoss", "MakeOptimizer", "ModuleClient", "StepsClient", "TrainClient", "batch_loss", "takes_model"]

BatchLoss = Callable[[nn.Module, Any], Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def takes_model(loss: Callable[..., Tensor]) -> bool:
    """Whether a loss is of the form ``loss(model, batch)``: its first parameter is called model (or is a Module)."""
    try:
        first = next(iter(inspect.signature(loss).parameters.values()))
    except (TypeError, ValueError, StopIteration):
        return False
    return first.name in ("model", "module", "net") or first.annotation in (nn.Module, "nn.Module", "torch.nn.Module")


def batch_loss(loss: Callable[..., Tensor]) -> BatchLoss:
    """``loss(model, batch)`` from either form; ``loss(output, y)`` needs batches that are pairs (x, y)."""
    if takes_model(loss):
        return loss

    def pairwise(model: nn.Module, batch: Any) -> Tensor:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise InputError(
                f"loss(output, y) needs batches that are pairs (x, y), got {type(batch).__name__}; give a loss whose "
                "first parameter is called model: loss=lambda model, batch: ..."
            )
        return loss(model(batch[0]), batch[1])

    return pairwise


class ModuleClient(ABC):
    """A client that changes the shared module in place; subclasses say how."""

    def __init__(self, client: int, model: FlatModel, *, seed: int) -> None:
        self.client, self.model, self.seed = client, model, seed
        self.statistics: dict[str, Tensor] = {}

    @abstractmethod
    def train(self, t: int) -> float:
        """Change the module in place; return the weight of the change."""

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Δ_c(t), and its weight."""
        self.model.load(w).train()
        with _seeded(self.seed, t=t, client=self.client), self.own_statistics(keep=True):
            weight = self.train(t)
        return self.model.flatten() - w, weight

    @contextmanager
    def own_statistics(self, *, keep: bool = False) -> Iterator[None]:
        """The module with this client's own running statistics, if they are local."""
        if self.model.local_statistics:
            buffers = dict(self.model.module.named_buffers())
            first = {name: value.clone() for name, value in buffers.items()}
            for name, value in self.statistics.items():
                buffers[name].copy_(value)
            yield
            if keep:
                self.statistics = {name: value.clone() for name, value in buffers.items()}
            for name, value in first.items():
                buffers[name].copy_(value)
        else:
            yield

    def state_dict(self) -> dict[str, Any]:
        """What the client keeps between rounds."""
        return {"statistics": dict(self.statistics)} if self.statistics else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.statistics = dict(state.get("statistics", {}))

    def __repr__(self) -> str:
        """No data: a log must not hold any."""
        return f"{type(self).__name__}(client={self.client})"


class StepsClient(ModuleClient):
    """K steps of an optimiser on batches of the client's own data.

    ``data`` is a DataLoader (or anything that yields batches), or a Dataset whose examples are drawn in shuffled epochs
    of ``work.batch`` and put together by ``collate``.
    """

    def __init__(
        self,
        client: int,
        model: FlatModel,
        *,
        data: Any,
        loss: BatchLoss,
        work: LocalWork,
        optimizer: MakeOptimizer,
        weight: float | None = None,
        keep_optimizer: bool = False,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        super().__init__(client, model, seed=work.seed)
        self.data, self.loss, self.work, self.optimizer = data, loss, work, optimizer
        self.keep_optimizer, self.collate = keep_optimizer, collate
        self.kept: dict[str, Any] = {}
        self.moments: list[float] | None = None
        self.weight = float(_examples(client, data) if weight is None else weight)

    def train(self, t: int) -> float:
        """K steps; the optimiser is fresh, or goes on from this client's last round if it is kept."""
        parameters = [p for p in self.model.module.parameters() if p.requires_grad]
        optimizer = self.optimizer(parameters)
        if self.kept:
            optimizer.load_state_dict(self.kept)
        taken = 0
        for batch in islice(self._batches(t), self.work.steps):
            optimizer.zero_grad(set_to_none=True)
            loss = self.loss(self.model.module, moved(batch, self.model.device))
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                raise InputError(f"client {self.client}: the loss must be one number, got {_shape(loss)}; average it")
            torch.autograd.backward(loss)
            optimizer.step()
            taken += 1
        if taken == 0:
            raise InputError(f"client {self.client} has no data: its loader gave no batch; leave the client out")
        self.moments = second_moments(optimizer, parameters)
        if self.keep_optimizer:
            self.kept = optimizer.state_dict()
        return self.weight

    def _batches(self, t: int) -> Iterator[Any]:
        if isinstance(self.data, Dataset) and isinstance(self.data, Sized):
            index = batch_indices(self.work, t=t, client=self.client, examples=len(self.data))
            for step in index.tolist():
                yield self._collated([self.data[i] for i in step])
            return
        generator = getattr(self.data, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(torch.initial_seed())
        while True:
            empty = True
            for batch in self.data:
                empty = False
                yield batch
            if empty:
                return

    def _collated(self, examples: list[Any]) -> Any:
        try:
            return self.collate(examples)
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"client {self.client}: its examples do not fit into one batch ({_first_line(error)}); give a "
                "DataLoader with your own collate_fn, or Client(..., collate=...)"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Running statistics, and the optimiser's state if it is kept."""
        if not self.kept:
            return super().state_dict()
        slots = {str(i): dict(slot) for i, slot in self.kept["state"].items()}
        return {**super().state_dict(), "optimizer": {"state": slots, "param_groups": self.kept["param_groups"]}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        if "optimizer" in state:
            slots = {int(i): slot for i, slot in state["optimizer"]["state"].items()}
            self.kept = {"state": slots, "param_groups": state["optimizer"]["param_groups"]}


class TrainClient(ModuleClient):
    """A training loop of the user's own: ``train(model)`` or ``train(model, t)`` changes it and returns a weight."""

    def __init__(self, client: int, model: FlatModel, *, function: Callable[..., Any], seed: int) -> None:
        super().__init__(client, model, seed=seed)
        self.function = function
        self._takes_round = _takes_round(function)

    def train(self, t: int) -> float:
        """Call it."""
        module = self.model.module
        weight = self.function(module, t) if self._takes_round else self.function(module)
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise InputError(
                f"client {self.client}: the training function must return the weight of its update, for example its "
                f"number of examples, got {weight!r}"
            )
        return float(weight)


def _takes_round(function: Callable[..., Any]) -> bool:
    """Whether a second argument is asked for; parameters with defaults (``x=x`` in a lambda) are the user's own."""
    _, *rest = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and (p.default is p.empty or p.name == "t") for p in rest[:1])


@contextmanager
def _seeded(seed: int, *, t: int, client: int) -> Iterator[None]:
    """Torch's random numbers of this client and round; the caller's own are put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, t=t, client=client).integers(2**63)))
        yield


def _examples(client: int, data: Any) -> int:
    source = data.dataset if isinstance(data, DataLoader) else data
    if not isinstance(source, Sized):
        raise InputError(f"client {client}: how many examples it has is not known; give Client(..., weight=n)")
    if len(source) == 0:
        raise InputError(f"client {client} has no data; leave it out")
    return len(source)


def _shape(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
