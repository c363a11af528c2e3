"""Ranks inside one process: the exchange of an outer round between threads, for simulations and searches.

Same methods, same bytes, same counts as over a process group; only the three collectives are replaced by a shared
table.  `together` runs one function a rank, each in its own thread, as a round needs: a collective waits for everybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from desketch.integrations.torch.exchange import Buffer, Exchange

__all__ = ["LocalExchange", "local_ranks", "together"]

T = TypeVar("T")
_PATIENCE = 600.0  # seconds a rank waits for the others before it calls the round broken


class LocalExchange(Exchange):
    """One rank of a group that lives in this process."""

    def __init__(self, rank: int, table: list[object], barrier: threading.Barrier) -> None:
        self.group, self.device = None, torch.device("cpu")
        self.size, self.rank = len(table), rank
        self.sent = self.received = 0
        self._table, self._barrier = table, barrier

    def give_up(self) -> None:
        """End the waiting of the others: something failed here."""
        self._barrier.abort()

    def _all_gather(self, mine: bytes) -> list[Buffer]:
        return [bytes(row) for row in self._show(mine)]  # type: ignore[call-overload]

    def _all_to_all(self, outgoing: list[bytes], *, mine: int) -> list[Buffer]:
        return [row[self.rank] for row in self._show(outgoing)]  # type: ignore[index]

    def _broadcast(self, values: torch.Tensor, *, source: int) -> None:
        row = self._show(values.clone())[source]
        assert isinstance(row, torch.Tensor)
        values.copy_(row)

    def _show(self, mine: object) -> list[object]:
        """Put something on the table, and read everyone's when all have; nobody writes before all have read."""
        self._table[self.rank] = mine
        self._barrier.wait(_PATIENCE)
        everyone = list(self._table)
        self._barrier.wait(_PATIENCE)
        return everyone


def local_ranks(size: int) -> list[LocalExchange]:
    """The exchanges of ``size`` ranks of one group."""
    table: list[object] = [None] * size
    barrier = threading.Barrier(size)
    return [LocalExchange(rank, table, barrier) for rank in range(size)]


def together(ranks: Sequence[LocalExchange], do: Callable[[LocalExchange], T]) -> list[T]:
    """``do(exchange)`` for all ranks at once, results by rank; an error of one rank ends all and is raised."""

    def one(exchange: LocalExchange) -> T:
        try:
            return do(exchange)
        except BaseException:
            exchange.give_up()
            raise

    with ThreadPoolExecutor(len(ranks), thread_name_prefix="rank") as pool:
        futures = [pool.submit(one, exchange) for exchange in ranks]
    errors = [future.exception() for future in futures]
    first = next((e for e in errors if e and not isinstance(e.__cause__, threading.BrokenBarrierError)), None)
    if first or any(errors):
        raise first or next(e for e in errors if e)
    return [future.result() for future in futures]
