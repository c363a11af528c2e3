"""Alone: clients that take the local steps of a run and never communicate, to measure what communicating brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from torch import Tensor

from desketch.fed.engine import Engine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.rounds import Attendance

__all__ = ["followed", "train_alone"]


def followed(clients: int, *, most: int) -> list[int]:
    """At most ``most`` of the clients, spread evenly over their ids."""
    n = min(clients, most)
    return [i * clients // n for i in range(n)]


def train_alone(
    clients: Sequence[ClientData],
    engine: Engine,
    work: LocalWork,
    attendance: Attendance,
    *,
    who: Sequence[int],
) -> Iterator[Sequence[Tensor]]:
    """The models of the clients ``who``, round by round; a client trains when a federation would have asked it.

    Everybody starts from the engine's model and sees the batches that it would have seen in the run.
    """
    models = {c: engine.model.flatten() for c in who}
    for t in count(1):
        for c in models.keys() & set(attendance.cohort(t, len(clients))):
            models[c] = models[c] + engine.updates(models[c], [clients[c]], work, t=t)[0]
        yield list(models.values())
