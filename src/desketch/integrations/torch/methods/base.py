"""Method: how the ranks' updates become one mean update, by which collectives and for how many bytes.

A round has three parts, and every method is these three functions:

    prepare   what a rank has to say: notes of fixed length, and the length of its payload
    merge     notes of all ranks in hand, exchange payloads: the same u in R^d on every rank
    commit    the round is over and this rank was heard: memory, where a method has one, may move on

A round that fails between them has changed nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from desketch.errors import InputError
from desketch.integrations.torch.exchange import Exchange

__all__ = ["Heard", "Method", "Said"]


@dataclass(frozen=True)
class Said:
    """What one rank brings to a round: public ``notes``, of one length on every rank, and its payload, of any."""

    notes: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True)
class Heard:
    """The ranks that count in a round, in order, with their notes and the lengths of their payloads."""

    ranks: tuple[int, ...]
    notes: Mapping[int, bytes]
    lengths: Mapping[int, int]


class Method(ABC):
    """One way of averaging updates; ``lr`` and ``momentum`` are what its outer step is known to work with."""

    lr: ClassVar[float] = 0.7
    momentum: ClassVar[float] = 0.9
    d: int

    @abstractmethod
    def prepare(self, t: int, delta: Tensor) -> Said:
        """What this rank says in round t about its update; ``delta`` is read, not changed."""

    @abstractmethod
    def merge(self, t: int, delta: Tensor, said: Said, heard: Heard, exchange: Exchange) -> Tensor:
        """The mean update of the ranks that were heard, equal in every bit on all; may overwrite ``delta``."""

    def commit(self) -> None:
        """Keep the memory of the last `prepare`; most methods have none."""
        return

    @abstractmethod
    def round_bytes(self, ranks: int) -> float:
        """Bytes a rank sends in a round, on average over the ranks; it receives as many."""

    def state_dict(self) -> dict[str, Any]:
        """What this rank remembers between rounds."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state:
            raise InputError(f"this method keeps no memory, the state has {sorted(state)}; resume with the same method")
