"""Method: how the ranks' updates become one mean update, by which collectives and for how many bytes.

A round has three parts, and every method is these three functions:

    prepare   what a rank has to say: notes of fixed length, and the length of its payload
    merge     notes of all ranks in hand, exchange payloads: the same u in R^d on every rank
    commit    the round is over and this rank was heard: memory, where a method has one, may move on

A round that fails between them has changed nothing.  An update is read in cuts, ``delta[cut]``, and u comes in pieces,
so that a method which needs no vector of d numbers makes none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from desketch.core.flat import FlatParameters
from desketch.errors import InputError
from desketch.integrations.torch.exchange import Exchange

__all__ = ["Delta", "Heard", "Method", "Moved", "Pieces", "Said", "joined", "whole"]


class Moved:
    """theta_w - theta while the model stands still: made anew in every cut that is read, never held."""

    def __init__(self, flat: FlatParameters, theta: Tensor) -> None:
        self.flat, self.theta = flat, theta

    def __getitem__(self, cut: slice) -> Tensor:
        return self.flat.flatten(cut).cpu().sub_(self.theta[cut])


Delta = Tensor | Moved
"""An update; who reads a cut of it may write over what it got."""

Pieces = Iterable[tuple[slice, Tensor]]
"""A vector as its pieces, each with its place, in order."""


def whole(u: Tensor) -> Pieces:
    """A vector in one piece."""
    return [(slice(0, len(u)), u)]


def joined(pieces: Pieces) -> Tensor:
    """The vector of all pieces."""
    return torch.cat([u for _, u in pieces])


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
    def prepare(self, t: int, delta: Delta) -> Said:
        """What this rank says in round t about its update; ``delta`` is read, not changed."""

    @abstractmethod
    def merge(self, t: int, delta: Delta, said: Said, heard: Heard, exchange: Exchange) -> Pieces:
        """The mean update of the ranks that were heard, equal in every bit on all; may write over ``delta``."""

    def commit(self) -> None:
        """Keep the memory of the last `prepare`; most methods have none."""
        return

    def share(self, ranks: int) -> float | None:
        """How much of an update that all ranks made alike its round's u will have; None if nobody should count on it.

        An overlapped rank goes on from what it counts on.  Without the small gain of a sketch, that ran away.
        """
        return None

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
