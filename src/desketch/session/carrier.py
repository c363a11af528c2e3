"""Carrier: the one seam between the rounds of a session and whatever moves bytes.

A carrier knows nodes, not clients: a node is an address at which one client answers orders (`ClientSession.answer`)
until it is gone.  It may lose, repeat, delay, reorder and cut what it carries; it must not deliver under a node's name
what that node did not send, as far as it can tell its nodes apart.  What is in the bytes is no concern of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import NamedTuple

__all__ = ["Arrival", "Carrier"]


class Arrival(NamedTuple):
    """A node's answer, or why there will be none.

    ``error`` is the carrier's own word for a node that cannot answer; with ``again`` it knows that the order was not
    answered, so that a second one may be.  ``beside`` counts bytes that came along with ``data`` (metrics, say) and
    ``carried`` is the engine's own object, for those who know the engine.
    """

    node: int
    data: bytes = b""
    error: str | None = None
    again: bool = False
    beside: int = 0
    carried: object = None


class Carrier(ABC):
    """Carries orders to nodes and brings back what they answer."""

    @abstractmethod
    def nodes(self) -> list[int]:
        """The nodes that are there now, each a number that stays theirs while they are."""

    @abstractmethod
    def send(self, node: int, data: bytes, deadline: float) -> None:
        """Start an order on its way and return; after ``deadline`` (on the clock of `now`) nobody waits for its answer.

        An order to a node that is not there is lost, or becomes an `Arrival` with an error; it is no exception.  A
        newer order supersedes an older one of the same node.
        """

    @abstractmethod
    def arrivals(self, timeout: float) -> list[Arrival]:
        """What has come since the last call; waits for something, at most ``timeout`` seconds.

        It may return early with nothing, e.g. because a node has just connected.
        """

    def now(self) -> float:
        """Seconds on the clock that deadlines are given in; it never goes back."""
        return time.monotonic()
