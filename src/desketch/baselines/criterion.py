"""Reach AND hold: the first evaluation at or above the target whose next three have their median there too.

A noisy method crosses a target by luck long before it stays there; a cost is charged only where the accuracy stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from desketch.errors import InputError

__all__ = ["HOLD", "Point", "reach_and_hold"]

HOLD = 3


@dataclass(frozen=True)
class Point:
    """One evaluation: the round, the accuracy, and the bytes one client has sent and received until then."""

    round: int
    accuracy: float
    bytes_up: float
    bytes_down: float

    @property
    def bytes(self) -> float:
        """Both directions."""
        return self.bytes_up + self.bytes_down


def reach_and_hold(points: Sequence[Point], target: float, *, hold: int = HOLD) -> Point | None:
    """The first point at or above ``target`` whose next ``hold`` accuracies have their median there, if any."""
    if hold < 1:
        raise InputError(f"hold must be at least 1 evaluation, got {hold}")
    for i in range(len(points) - hold):
        later = [point.accuracy for point in points[i + 1 : i + 1 + hold]]
        if points[i].accuracy >= target and median(later) >= target:
            return points[i]
    return None
