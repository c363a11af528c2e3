"""Goals: what a task asks of a model, as its loss, its number of outputs and its metrics.

==================  =====================  =========================  ============================================
goal                label of an example    loss, a mean               metrics
==================  =====================  =========================  ============================================
``classification``  a class                cross-entropy              accuracy
``language``        the next symbols       cross-entropy, in nats     perplexity = exp(loss)
``regression``      a number               squared error, of the      rmse in the label's own units,
                                           standardised label         r2 = 1 - Σ(ŷ - y)² / Σ(y - mean y)²
``multilabel``      L answers of yes, no   binary cross-entropy       f1 = 2TP / (2TP + FP + FN) over all answers;
                                                                      subset_accuracy: all L answers right
==================  =====================  =========================  ============================================

Metrics are formed from sums over the examples (`Goal.tally`), so they do not depend on how the examples are batched.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from desketch.core.flat import FlatModel, Loss
from desketch.core.metrics import METRICS, Metric

__all__ = ["Classification", "Goal", "Language", "MultiLabel", "Regression"]

Scores = dict[str, float]


class Goal(ABC):
    """Loss, outputs and metrics of a task."""

    name: ClassVar[str]
    metric: ClassVar[Metric]  # the one that judges a model first
    discrete: ClassVar[bool] = True  # whether `sort_key` takes few values
    batch: ClassVar[int] = 2048  # examples evaluated at once
    outputs: int

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """The mean loss of a batch, ``loss(output, y)``."""

    @abstractmethod
    def tally(self, output: Tensor, y: Tensor) -> Tensor:
        """Sums over the examples of a batch from which `score` forms the metrics, in float64."""

    @abstractmethod
    def score(self, loss: float, total: Tensor) -> Scores:
        """The metrics from the mean loss and the summed tallies."""

    def sort_key(self, y: Tensor) -> npt.NDArray[Any]:
        """What examples are sorted by when clients shall differ."""
        return y.cpu().numpy()

    def evaluate(self, model: FlatModel, w: Tensor, x: Tensor, y: Tensor) -> Scores:
        """Loss and metrics of w on (x, y)."""
        tallies: list[Tensor] = []
        scores = model.evaluate(
            w, x, y, watch=lambda output, part: tallies.append(self.tally(output, part)), batch=self.batch
        )
        return scores | self.score(scores["loss"], torch.stack(tallies).sum(0))


@dataclass(frozen=True)
class Classification(Goal):
    """One class of ``outputs``."""

    outputs: int
    name = "classification"
    metric = METRICS["accuracy"]

    @property
    def loss(self) -> Loss:
        """Cross-entropy."""
        return cross_entropy

    def tally(self, output: Tensor, y: Tensor) -> Tensor:
        """Hits, examples."""
        return _sums((output.argmax(-1) == y).sum(), len(y))

    def score(self, loss: float, total: Tensor) -> Scores:
        """The share of hits."""
        return {"accuracy": float(total[0] / total[1])}


@dataclass(frozen=True)
class Language(Goal):
    """The next of ``outputs`` symbols at every place of a window; ``symbols`` lists them, unless they are bytes."""

    outputs: int
    symbols: str | None = None
    name = "language"
    metric = METRICS["perplexity"]
    discrete = False
    batch = 128

    @property
    def loss(self) -> Loss:
        """Cross-entropy over all places, in nats."""
        return next_symbol_loss

    def tally(self, output: Tensor, y: Tensor) -> Tensor:
        """Nothing: the loss says it all."""
        return _sums()

    def score(self, loss: float, total: Tensor) -> Scores:
        """exp(loss), and no overflow where a run has diverged."""
        return {"perplexity": math.exp(min(loss, 700.0))}

    def sort_key(self, y: Tensor) -> npt.NDArray[Any]:
        """The place in the text: windows lie in its order."""
        return np.arange(len(y))


@dataclass(frozen=True)
class Regression(Goal):
    """A number; labels are kept standardised, (y - mean) / std."""

    mean: float
    std: float
    outputs: int = 1
    name = "regression"
    metric = METRICS["rmse"]
    discrete = False

    @property
    def loss(self) -> Loss:
        """Mean squared error in units of the label's standard deviation."""
        return squared_error

    def tally(self, output: Tensor, y: Tensor) -> Tensor:
        """Examples, squared errors, labels, squared labels."""
        e, y = (output.reshape(y.shape).double() - y), y.double()
        return _sums(len(y), e.square().sum(), y.sum(), y.square().sum())

    def score(self, loss: float, total: Tensor) -> Scores:
        """Root mean squared error in the label's units, and the share of variance explained where there is any."""
        n, errors, labels, squares = total.tolist()
        spread = squares - labels**2 / n
        scores = {"rmse": self.std * math.sqrt(errors / n)}
        return scores | ({"r2": 1 - errors / spread} if spread > 1e-9 * n else {})


@dataclass(frozen=True)
class MultiLabel(Goal):
    """``outputs`` answers of yes or no, each from the sign of its own output."""

    outputs: int
    name = "multilabel"
    metric = METRICS["f1"]

    @property
    def loss(self) -> Loss:
        """Binary cross-entropy, the mean over examples and answers."""
        return binary_cross_entropy_with_logits

    def tally(self, output: Tensor, y: Tensor) -> Tensor:
        """Examples, examples all right, true positives, wrong answers."""
        said, true = output > 0, y > 0.5
        return _sums(len(y), (said == true).all(-1).sum(), (said & true).sum(), (said != true).sum())

    def score(self, loss: float, total: Tensor) -> Scores:
        """Micro-averaged F1 (1 where there was no yes and none was said) and subset accuracy."""
        n, exact, hits, wrong = total.tolist()
        f1 = 2 * hits / (2 * hits + wrong) if hits or wrong else 1.0
        return {"f1": f1, "subset_accuracy": exact / n}

    def sort_key(self, y: Tensor) -> npt.NDArray[Any]:
        """The number of an example's set of labels among all that occur."""
        return np.unique(y.cpu().numpy(), axis=0, return_inverse=True)[1].reshape(-1)


def next_symbol_loss(output: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of ``output (..., symbols)`` against ``y (...)``."""
    return cross_entropy(output.flatten(0, -2), y.flatten())


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of ``output (B, 1)`` or ``(B,)`` against ``y (B,)``."""
    return mse_loss(output.reshape(y.shape), y)


def _sums(*values: Tensor | float) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)
