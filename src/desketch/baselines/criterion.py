"""Reach AND hold: the first evaluation at the target or better whose next three have their median there too.

A noisy method crosses a target by luck long before it stays there; a cost is charged only where the metric stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from desketch.core.metrics import METRICS, Metric
from desketch.errors import InputError

__all__ = ["HOLD", "Point", "reach_and_hold"]

HOLD = 3


@dataclass(frozen=True)
class Point:
    """One evaluation: the round, the metric's value, and the bytes one client has sent and received until then."""

    round: int
    value: float
    bytes_up: float
    bytes_down: float

    @property
    def bytes(self) -> float:
        """Both directions."""
        return self.bytes_up + self.bytes_down


def reach_and_hold(
    points: Sequence[Point], target: float, *, metric: Metric = METRICS["accuracy"], hold: int = HOLD
) -> Point | None:
    """The first point at ``target`` or better whose next ``hold`` values have their median there, if any."""
    if hold < 1:
        raise InputError(f"hold must be at least 1 evaluation, got {hold}")
    for i in range(len(points) - hold):
        later = [point.value for point in points[i + 1 : i + 1 + hold]]
        if metric.reached(points[i].value, target) and metric.reached(median(later), target):
            return points[i]
    return None
