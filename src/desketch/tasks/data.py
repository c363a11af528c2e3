"""Task: training, validation and test examples that never mix.

Validation examples are cut from the training set; the test set is the source's own, or a fixed fifth of it that depends
on nothing but its size.  Bytes become floats in [0, 1]; the columns of a table are standardised by the training rows.
What the labels ask of a model is the task's goal (``goals.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.errors import ConfigError
from desketch.tasks.files import Arrays, read_csv, read_idx_folder, read_npz
from desketch.tasks.goals import Classification, Goal
from desketch.tasks.labels import choose_goal, learn_labels
from desketch.tasks.text import read_text, windows

__all__ = ["SOURCES", "Task", "load_task", "task_from_arrays"]

_TEST_SHARE = 0.2
_TEST_SEED = 20_230_723  # fixed for ever: two runs on the same data share their test set


@dataclass(frozen=True, kw_only=True)
class Task:
    """Examples of shape ``(n, *input_shape)``, float32, or int64 symbols of a text; labels as ``goal`` learns them."""

    name: str
    x_train: Tensor
    y_train: Tensor
    x_val: Tensor
    y_val: Tensor
    x_test: Tensor
    y_test: Tensor
    goal: Goal
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example: ``(channels, height, width)``, ``(features,)``, or ``(context,)`` of a text."""
        return tuple(self.x_train.shape[1:])

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for an example (for each place of a text)."""
        return self.goal.outputs

    @property
    def classes(self) -> int:
        """How many classes there are; a task of another goal has none."""
        if not isinstance(self.goal, Classification):
            raise ConfigError(f"{self.name} is a {self.goal.name} task, it has no classes; give a classification task")
        return self.goal.outputs

    def __repr__(self) -> str:
        sizes = "/".join(str(len(y)) for y in (self.y_train, self.y_val, self.y_test))
        return f"Task({self.name}: {sizes} train/val/test, input {self.input_shape}, {self.goal})"


def _digits(_: str, **__: Any) -> Arrays:
    """The 1,797 8x8 digits that scikit-learn embeds (UCI, Alpaydin and Kaynak 1998), scaled from 0..16 to [0, 1]."""
    spec = find_spec("sklearn")  # where its files are; importing it takes longer than a short run
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the digits are scikit-learn's, which is not installed; pip install scikit-learn")
    table = np.loadtxt(Path(spec.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", delimiter=",")
    return Arrays(x=(table[:, :-1].reshape(-1, 8, 8) / 16.0).astype(np.float32), y=table[:, -1].astype(np.int64))


# kind -> reader(where, label=, group=)
SOURCES: dict[str, Callable[..., Arrays]] = {
    "digits": _digits,
    "idx": lambda where, **_: read_idx_folder(Path(where)),
    "npz": lambda where, **_: read_npz(Path(where)),
    "csv": lambda where, **options: read_csv(Path(where), **options),
}


def load_task(
    spec: str,
    *,
    validation: float = 0.1,
    seed: int = 0,
    label: str | None = None,
    group: str | None = None,
    goal: str | None = None,
    level: str = "char",
    context: int = 64,
) -> Task:
    """Load ``digits``, ``idx:FOLDER``, ``npz:FILE``, ``csv:FILE`` or ``text:FILE``.

    ``validation`` is the share of the training set kept apart by ``seed`` (of a text: its end); ``label`` names the
    label columns of a CSV file (default: the last), ``group`` a column that tells clients apart and is no feature;
    ``goal`` is what to learn, by the labels when left out; ``level`` and ``context`` are those of a text.
    """
    kind, _, where = spec.partition(":")
    if kind not in (*SOURCES, "text") or bool(where) == (kind == "digits"):
        raise ConfigError(f"unknown task {spec!r}; choose digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE")
    if not 0 <= validation < 1:
        raise ConfigError(f"validation is a share of the training set in [0, 1), got {validation}")
    if kind == "text":
        if goal or label:
            raise ConfigError(f"a text is learnt as a language model, without {'goal' if goal else 'label'}; drop it")
        return _text(spec, Path(where), level=level, context=context, validation=validation)
    arrays = SOURCES[kind](where, label=label, group=group)
    return _build(spec, arrays, validation=validation, seed=seed, standardise=kind == "csv", goal=goal)


def _text(name: str, path: Path, *, level: str, context: int, validation: float) -> Task:
    goal, codes = read_text(path, level=level)
    parts = windows(path, codes, context=context, validation=validation)
    return Task(name=name, goal=goal, **{part: torch.from_numpy(v) for part, v in parts.items()}, columns={})


def task_from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    x_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
    columns: Mapping[str, npt.ArrayLike] | None = None,
    name: str = "arrays",
    validation: float = 0.1,
    seed: int = 0,
    goal: str | None = None,
) -> Task:
    """Build a task from any arrays; without a test set, a fixed fifth of the rows becomes one."""
    arrays = Arrays(
        x=np.asarray(x),
        y=np.asarray(y),
        x_test=None if x_test is None else np.asarray(x_test),
        y_test=None if y_test is None else np.asarray(y_test),
        columns={key: np.asarray(value) for key, value in (columns or {}).items()},
    )
    return _build(name, arrays, validation=validation, seed=seed, standardise=False, goal=goal)


def _build(
    name: str, arrays: Arrays, *, validation: float, seed: int, standardise: bool, goal: str | None = None
) -> Task:
    if not 0 <= validation < 1:
        raise ConfigError(f"validation is a share of the training set in [0, 1), got {validation}")
    arrays = _with_test(name, arrays)
    assert arrays.x_test is not None
    assert arrays.y_test is not None
    wanted = choose_goal(name, np.concatenate([arrays.y, arrays.y_test]), goal)
    n = len(arrays.y)
    order = np.random.default_rng(seed).permutation(n)
    held = round(validation * n)
    val, train = order[:held], np.sort(order[held:])
    learnt, y, y_test = learn_labels(name, wanted, arrays.y, arrays.y_test, train)
    x, x_test = _inputs(name, arrays.x), _inputs(name, arrays.x_test)
    if x.shape[1:] != x_test.shape[1:]:
        raise ConfigError(f"{name}: training inputs have shape {x.shape[1:]}, test inputs {x_test.shape[1:]}")
    if standardise:
        mean, std = x[train].mean(0), x[train].std(0)
        x, x_test = ((part - mean) / np.where(std > 0, std, 1) for part in (x, x_test))
    tensors: dict[str, npt.NDArray[Any]] = {"x_train": x[train], "x_val": x[val], "x_test": x_test}
    tensors |= {"y_train": y[train], "y_val": y[val], "y_test": y_test}
    columns = {key: np.asarray(value)[train] for key, value in arrays.columns.items()}
    return Task(name=name, **{k: torch.from_numpy(v) for k, v in tensors.items()}, goal=learnt, columns=columns)


def _with_test(name: str, arrays: Arrays) -> Arrays:
    """Check lengths, and cut the test set off when the source has none."""
    n = len(arrays.y)
    lengths = {"x": len(arrays.x), "y": n} | {key: len(value) for key, value in arrays.columns.items()}
    if len(set(lengths.values())) != 1 or arrays.y.ndim not in (1, 2) or 0 in arrays.y.shape[1:]:
        raise ConfigError(
            f"{name}: x, y and columns must be equally long and y of shape (n,) or (n, labels), got lengths {lengths} "
            f"and y {arrays.y.shape}"
        )
    if (arrays.x_test is None) != (arrays.y_test is None):
        raise ConfigError(f"{name}: x_test and y_test come together or not at all")
    if arrays.x_test is not None and arrays.y_test is not None:
        if len(arrays.x_test) != len(arrays.y_test) or len(arrays.y_test) == 0:
            raise ConfigError(f"{name}: x_test has {len(arrays.x_test)} rows, y_test {len(arrays.y_test)}")
        if arrays.y.shape[1:] != arrays.y_test.shape[1:]:
            raise ConfigError(f"{name}: y has shape {arrays.y.shape}, y_test {arrays.y_test.shape}")
        return arrays
    if n < 10:
        raise ConfigError(f"{name}: {n} examples are too few to cut a test set from; give at least 10, or a test set")
    order = np.random.default_rng(_TEST_SEED).permutation(n)
    cut = round(_TEST_SHARE * n)
    test, rest = np.sort(order[:cut]), np.sort(order[cut:])
    columns = {key: value[rest] for key, value in arrays.columns.items()}
    return Arrays(x=arrays.x[rest], y=arrays.y[rest], x_test=arrays.x[test], y_test=arrays.y[test], columns=columns)


def _inputs(name: str, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Float32 rows; bytes are scaled to [0, 1]; grey images gain their channel axis."""
    if x.ndim < 2 or x.dtype.kind not in "iufb":
        raise ConfigError(f"{name}: inputs must be numbers of shape (n, features) or images, got {x.dtype} {x.shape}")
    out = x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)
    if not np.isfinite(out).all():
        raise ConfigError(f"{name}: inputs hold NaN or infinity in float32; clean them first")
    return np.ascontiguousarray(out[:, None] if out.ndim == 3 else out)
