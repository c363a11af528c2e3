"""From the raw labels of a source to a goal and the numbers it learns; every label that fits no goal is refused.

Without a word from the user: several columns are multi-label, numbers that are not whole are regression, anything else
is a class.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import ConfigError
from desketch.tasks.goals import Classification, Goal, MultiLabel, Regression

__all__ = ["GOALS", "choose_goal", "learn_labels"]

Array = npt.NDArray[Any]
GOALS = ("classification", "regression", "multilabel")
_MANY = 50  # more kinds than classes usually are


def choose_goal(name: str, y: Array, wanted: str | None) -> str:
    """The goal that ``y`` can serve: the wanted one, or by the shape and the values of the labels."""
    if wanted is not None and wanted not in GOALS:
        raise ConfigError(f"unknown goal {wanted!r}; choose one of {', '.join(GOALS)}")
    if y.ndim == 2 and wanted not in (None, "multilabel"):
        raise ConfigError(f"{name}: {wanted} learns one label, got {y.shape[1]}; name one, or leave the goal out")
    if y.ndim == 1 and wanted == "multilabel":
        raise ConfigError(f"{name}: multilabel needs several label columns (label a,b,c), or y of shape (n, L)")
    if wanted is not None:
        return wanted
    if y.ndim == 2:
        return "multilabel"
    if _fractional(name, y):
        return "regression"
    kinds = len(np.unique(y))
    if kinds > _MANY and 5 * kinds > len(y) and _as_numbers(y) is not None:
        warnings.warn(
            f"{name}: the label has {kinds} different whole numbers in {len(y)} rows, which are read as classes; "
            "if it is a quantity, say goal regression",
            stacklevel=2,
        )
    return "classification"


def learn_labels(name: str, goal: str, y: Array, y_test: Array, train: Array) -> tuple[Goal, Array, Array]:
    """The goal, and the labels as it learns them; ``train`` are the rows that may be looked at for scales."""
    if goal == "classification":
        classes, y, y_test = _classes(name, y, y_test)
        return Classification(classes), y, y_test
    if goal == "multilabel":
        return MultiLabel(y.shape[1]), _answers(name, y), _answers(name, y_test)
    y, y_test = _numbers(name, y), _numbers(name, y_test)
    mean, std = float(y[train].mean()), float(y[train].std())
    if not std > 1e-12 * abs(mean):
        raise ConfigError(f"{name}: the label is {mean:g} in every training row; regression needs one that varies")
    scaled, scaled_test = (((part - mean) / std).astype(np.float32) for part in (y, y_test))
    return Regression(mean, std), scaled, scaled_test


def _fractional(name: str, y: Array) -> bool:
    """Whether the labels are numbers, and not all whole."""
    values = _as_numbers(y)
    if values is None:
        return False
    if not np.isfinite(values).all():
        raise ConfigError(f"{name}: a label is not a number; drop its row, or fill it in")
    return bool((values != np.round(values)).any())


def _as_numbers(y: Array) -> npt.NDArray[np.float64] | None:
    try:
        return y.astype(np.float64)
    except ValueError:
        return None


def _numbers(name: str, y: Array) -> npt.NDArray[np.float64]:
    values = _as_numbers(y)
    if values is None:
        odd = next(str(cell) for cell in y if _as_numbers(np.array([cell])) is None)
        raise ConfigError(f"{name}: regression needs a numeric label, got {odd!r}; clean the column, or drop the goal")
    if not np.isfinite(values).all():
        raise ConfigError(f"{name}: a label is not a number; drop its row, or fill it in")
    return values


def _answers(name: str, y: Array) -> npt.NDArray[np.float32]:
    values = _as_numbers(y)
    odd = y if values is None else y[(values != 0) & (values != 1)]
    if odd.size:
        raise ConfigError(f"{name}: multi-label answers are 0 or 1, got {odd.flat[0]!s}; encode them so")
    assert values is not None
    return values.astype(np.float32)


def _classes(name: str, *parts: Array) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the distinct labels 0, 1, ... in sorted order; whole numbers from 0 keep their value."""
    joined = np.concatenate(parts)
    values, codes = np.unique(joined, return_inverse=True)
    if joined.dtype.kind == "f" and not np.isfinite(joined).all():
        raise ConfigError(f"{name}: a label is not a number")
    if len(values) < 2 or len(values) > 65_536:
        raise ConfigError(f"{name}: labels take {len(values)} values; classification needs 2 to 65536")
    whole = joined.dtype.kind in "iu" and values[0] >= 0 and values[-1] < 2 * len(values)
    codes = joined if whole else codes
    labels = codes.astype(np.int64)
    return int(labels.max()) + 1, labels[: len(parts[0])], labels[len(parts[0]) :]
