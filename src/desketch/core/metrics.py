"""Metrics by name: which way is better, and how a value is written for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["METRICS", "Metric", "primary"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that judges a model; a ``share`` lies between 0 and 1 and is shown in percent."""

    name: str
    higher: bool
    share: bool = False

    @property
    def title(self) -> str:
        """The name with spaces."""
        return self.name.replace("_", " ")

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.title}, %" if self.share else self.title

    @property
    def scale(self) -> float:
        """What a value is multiplied by on such an axis."""
        return 100.0 if self.share else 1.0

    def show(self, value: float) -> str:
        """A value for people: percent, or four digits."""
        return f"{value:.2%}" if self.share else f"{value:.4g}"

    def reached(self, value: float, target: float) -> bool:
        """Whether a value is at the target or better."""
        return value >= target if self.higher else value <= target

    def best(self, *values: float) -> float:
        """The best of some values."""
        return max(values) if self.higher else min(values)


# what a task is judged by first comes first
METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", higher=True, share=True),
        Metric(name="perplexity", higher=False),
        Metric(name="rmse", higher=False),
        Metric(name="f1", higher=True, share=True),
        Metric(name="r2", higher=True),
        Metric(name="subset_accuracy", higher=True, share=True),
    )
}


def primary(values: Mapping[str, Any]) -> Metric | None:
    """The first metric of the table that ``values`` has: a row of a run is judged by it."""
    return next((metric for name, metric in METRICS.items() if values.get(name) is not None), None)
