"""Text as examples of a language model: windows of a file, each beside itself one symbol later.

    x = s[iC : iC + C],      y = s[iC + 1 : iC + C + 1],      i = 0, 1, ...

The end of the text is the test set, a tenth of it; what lies before it is the validation set, the rest is for training.
Windows never reach from one part into another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import ConfigError
from desketch.tasks.goals import Language

__all__ = ["LEVELS", "read_text", "windows"]

LEVELS = ("char", "byte")
_TEST_SHARE = 0.1
_FEWEST = 20  # windows: below, the parts cut off would be empty

Array = npt.NDArray[Any]


def read_text(path: Path, *, level: str = "char") -> tuple[Language, npt.NDArray[np.int64]]:
    """A file as numbers of symbols: the characters that occur in it, by code point, or bytes."""
    if level not in LEVELS:
        raise ConfigError(f"unknown level {level!r} of a text; choose char or byte")
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8") if level == "char" else ""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text ({error}); convert it, or use level byte") from None
    if not raw:
        raise ConfigError(f"{path} is empty; a language model needs text")
    if level == "byte":
        return Language(256), np.frombuffer(raw, np.uint8).astype(np.int64)
    points, codes = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    if len(points) < 2:
        raise ConfigError(f"{path} holds one character only, {text[0]!r}; there is nothing to predict")
    return Language(len(points), "".join(map(chr, points))), codes.astype(np.int64)


def windows(path: Path, codes: Array, *, context: int, validation: float) -> dict[str, Array]:
    """Training, validation and test windows of ``context`` symbols."""
    if context < 1:
        raise ConfigError(f"context is a number of symbols, at least 1, got {context}")
    needed = _FEWEST * (context + 1)
    if len(codes) < needed:
        raise ConfigError(
            f"{path} has {len(codes)} symbols, too few for windows of {context}: give at least {needed}, or lower the "
            "context"
        )
    end = len(codes) - round(_TEST_SHARE * len(codes))
    middle = end - round(validation * end)
    parts = {"train": codes[:middle], "val": codes[middle:end], "test": codes[end:]}
    if len(parts["train"]) <= context:
        raise ConfigError(f"{path}: validation {validation:g} leaves no training window of {context}; lower it")
    cut: dict[str, Array] = {}
    for part, s in parts.items():
        n = max(0, len(s) - 1) // context
        cut[f"x_{part}"] = s[: n * context].reshape(n, context)
        cut[f"y_{part}"] = s[1 : n * context + 1].reshape(n, context)
    return cut
