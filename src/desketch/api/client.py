"""Client: one client's data, or its training loop, as a user has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from desketch.core.batches import as_tensor
from desketch.errors import InputError

__all__ = ["Client"]


class Client:
    """One client's data, or its training loop.

    ``Client(x, y)``            tensors or arrays, one row an example
    ``Client(dataset)``         a torch Dataset with a length; ``collate`` puts examples together
    ``Client(loader)``          a DataLoader, or anything that yields batches again and again
    ``Client(train=function)``  ``function(model)`` or ``function(model, t)`` trains it in place and returns the weight

    ``weight`` is the client's share in the mean, by default its number of examples.  The local optimiser is fresh in
    every round; ``keep_optimizer=True`` keeps its state (for example Adam's moments) with the client.

    >>> import numpy as np
    >>> Client(np.zeros((150, 64)), np.zeros(150))
    Client(tensors, examples=150)
    """

    def __init__(
        self,
        data: Any = None,
        y: Any = None,
        *,
        train: Callable[..., Any] | None = None,
        weight: float | None = None,
        keep_optimizer: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if (data is None) == (train is None):
            raise InputError("a client has data, Client(x, y) or Client(dataset), or a loop, Client(train=function)")
        if train is not None and not (callable(train) and y is None and weight is None and collate is None):
            raise InputError("Client(train=function) takes a function alone: it trains the model, returns the weight")
        if weight is not None and not 0 < weight < float("inf"):
            raise InputError(f"a client's weight must be a positive number, got {weight!r}")
        self.data, self.y, self.train, self.weight = data, y, train, weight
        self.keep_optimizer, self.collate = keep_optimizer, collate
        if y is not None:
            self.data, self.y = as_tensor("x", data), as_tensor("y", y)
            if self.data.ndim == 0 or len(self.data) != len(self.y):
                got = f"{tuple(self.data.shape)} and {tuple(self.y.shape)}"
                raise InputError(f"x and y must have one row an example, got shapes {got}")

    @property
    def has_tensors(self) -> bool:
        """Whether it is ``Client(x, y)``."""
        return self.y is not None

    def __repr__(self) -> str:
        """Kind and size, never data."""
        if self.train is not None:
            return f"Client(train={getattr(self.train, '__name__', 'function')})"
        kind = "tensors" if self.has_tensors else type(self.data).__name__
        size = f", examples={len(self.data)}" if self.has_tensors else ""
        return f"Client({kind}{size})"
