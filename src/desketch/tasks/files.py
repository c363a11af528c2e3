"""Readers of IDX, NPZ and CSV files into plain arrays; every malformed file is a `ConfigError` that says where.

IDX is the format of MNIST (LeCun, Cortes, Burges): two zero bytes, a type code, the number of axes, their sizes as
big-endian 32-bit integers, then the numbers.
"""

from __future__ import annotations

import csv
import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import ConfigError

__all__ = ["Arrays", "read_csv", "read_idx", "read_idx_folder", "read_npz"]

Array = npt.NDArray[Any]
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Examples and labels, with a test set when the source has its own, and named columns of the training rows."""

    x: Array
    y: Array
    x_test: Array | None = None
    y_test: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)


def read_idx(path: Path) -> Array:
    """Read one IDX file, gzipped or not; its announced size must be its real one."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise ConfigError(f"{path} is not an IDX file: it starts with {raw[:4].hex()!r}")
    axes, dtype = raw[3], np.dtype(_IDX_TYPES[raw[2]])
    start = 4 + 4 * axes
    shape = struct.unpack_from(f">{axes}I", raw, 4) if len(raw) >= start else ()
    expected = start + dtype.itemsize * int(np.prod(shape, dtype=object))
    if not shape or len(raw) != expected:
        raise ConfigError(f"{path} announces shape {shape}, that is {expected} bytes, but has {len(raw)}")
    return np.frombuffer(raw, dtype=dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read_idx_folder(folder: Path) -> Arrays:
    """Read the four files of an MNIST-like folder, with `.` or `-` before ``idx`` and with or without ``.gz``."""

    def find(part: str, axes: int) -> Array:
        names = [f"{part}{dot}idx{axes}-ubyte{end}" for dot in "-." for end in (".gz", "")]
        found = [folder / name for name in names if (folder / name).is_file()]
        if not found:
            raise ConfigError(
                f"{folder} has no {names[1]} (or {names[0]}); an IDX folder holds train-* and t10k-* files"
            )
        return read_idx(found[0])

    return Arrays(
        x=find("train-images", 3),
        y=find("train-labels", 1),
        x_test=find("t10k-images", 3),
        y_test=find("t10k-labels", 1),
    )


def read_npz(path: Path) -> Arrays:
    """Read ``x, y`` or ``x_train, y_train, x_test, y_test``; other arrays as long as the training set are columns."""
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = dict(data.items())
    except (OSError, ValueError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    aliases = {"x_train": "x", "y_train": "y"}
    arrays = {aliases.get(name, name): value for name, value in arrays.items()}
    if "x" not in arrays or "y" not in arrays:
        raise ConfigError(f"{path} holds {sorted(arrays)}; it needs x and y (or x_train and y_train)")
    named = {name: arrays.pop(name, None) for name in ("x", "y", "x_test", "y_test")}
    columns = {name: value for name, value in arrays.items() if value.shape == named["y"].shape[:1]}
    return Arrays(**named, columns=columns)


def read_csv(path: Path, *, label: str | None = None, group: str | None = None) -> Arrays:
    """Read a CSV file with a header row; ``label`` names a column or, ``a,b,c``, several; ``group`` is no feature.

    The default label is the last column.
    """
    header, rows = _csv_rows(path)
    labels = _label_columns(header, label)
    for name in (*labels, group):
        if name is not None and name not in header:
            raise ConfigError(f"{path} has no column {name!r}; its columns are {', '.join(header)}")
    table = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    _refuse_gaps(path, {name: table[name] for name in labels})
    features = [name for name in header if name not in (*labels, group)]
    if not features:
        raise ConfigError(f"{path} has no column left for features")
    x = np.stack([_numbers(path, name, table[name]) for name in features], axis=1)
    columns = {group: np.array(table[group])} if group is not None else {}
    y = np.array([table[name] for name in labels])
    return Arrays(x=x, y=y.T if len(labels) > 1 else y[0], columns=columns)


def _label_columns(header: list[str], label: str | None) -> list[str]:
    """The columns that ``label`` names; a column whose own name has a comma goes first."""
    if label is None:
        return header[-1:]
    return [label] if label in header else list(dict.fromkeys(name.strip() for name in label.split(",")))


def _refuse_gaps(path: Path, labels: Mapping[str, list[str]]) -> None:
    for name, cells in labels.items():
        for number, cell in enumerate(cells, start=2):
            if not cell.strip():
                raise ConfigError(f"{path}, row {number}: label column {name!r} is empty; fill it in, or drop the row")


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    header = [name.strip() for name in header]
    if not rows or len(set(header)) != len(header):
        raise ConfigError(f"{path} needs a header row of distinct names and at least one row of data")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigError(f"{path}, row {number}: got {len(row)} cells, the header has {len(header)}")
    return header, rows


def _numbers(path: Path, name: str, cells: list[str]) -> Array:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError as error:
        raise ConfigError(
            f"{path}, column {name!r} is not numeric ({error}); drop it or encode it as numbers"
        ) from None
