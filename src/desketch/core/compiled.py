"""The compiled kernels: whether they are there and wanted, on which instruction set, and with how many threads.

Environment, read when a sketch is drawn or a message is coded: ``DESKETCH_KERNELS`` = ``auto`` (default), ``compiled``
or ``reference`` (``DESKETCH_PURE=1``, which leaves the kernels out of a build, means the same); ``DESKETCH_ISA`` =
``avx512``, ``avx2`` or ``generic`` caps the instruction set; ``DESKETCH_THREADS`` caps the threads (default:
``OMP_NUM_THREADS``, else every core).  None of them changes a bit.
"""

from __future__ import annotations

import os
import warnings
from binascii import crc_hqx
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import SketchError

_CALLED = ("Plan", "crc16", "decode", "isas", "long_result", "rotate", "search", "variable")
_STALE = "the extension was built from an older source; install desketch again"


def _load() -> tuple[Any, str]:
    """The extension, or nothing and why; one that lacks what is called here would fail later, and worse."""
    try:
        found = import_module("desketch._kernels")
    except ImportError as error:
        return None, str(error)
    if all(hasattr(found, name) for name in _CALLED):
        return found, ""
    warnings.warn(f"the slower reference path is used: {_STALE}", stacklevel=2)
    return None, _STALE


_kernels, _failure = _load()
_ISAS: tuple[str, ...] = tuple(_kernels.isas()) if _kernels else ()
_variable: Callable[[str], str | None] = _kernels.variable if _kernels else os.environ.get

__all__ = [
    "LONG",
    "absence",
    "add_rows",
    "available",
    "crc16",
    "decode_signs",
    "empty",
    "isa",
    "isas",
    "plan",
    "rotate",
    "thread_limit",
    "trellis",
    "wanted",
    "workers",
]

_CHOICES = ("auto", "compiled", "reference")
_OFF = ("", "0", "false", "no", "off")
_REASON = Path(__file__).parents[1] / "_no_kernels.txt"  # written by CMakeLists.txt when it leaves the kernels out
_WORK_PER_THREAD = 1 << 18
LONG = 1 << 20  # bytes of a result; shorter ones the system's allocator keeps by itself
_CORES = os.cpu_count() or 1


def available() -> bool:
    """Whether the extension is there."""
    return _kernels is not None


def absence() -> str:
    """Why the extension is not there; empty if it is."""
    if _kernels is not None:
        return ""
    if _failure == _STALE:
        return _STALE
    if _REASON.is_file():
        return f"{_REASON.read_text(encoding='utf-8').strip()} when desketch was installed"
    if any(_REASON.parent.glob("_kernels*.so")) or any(_REASON.parent.glob("_kernels*.pyd")):
        return f"the extension does not load here ({_failure})"
    return "desketch was installed without them (DESKETCH_PURE=1, or from a folder that was never built)"


def wanted() -> bool:
    """Whether sketches drawn now use the compiled kernels."""
    choice, pure = _variable("DESKETCH_KERNELS"), (_variable("DESKETCH_PURE") or "").lower() not in _OFF
    if choice and choice not in _CHOICES:
        raise SketchError(f"DESKETCH_KERNELS must be one of {', '.join(_CHOICES)}, got {choice!r}")
    if pure and choice == "compiled":
        raise SketchError(
            "DESKETCH_PURE asks for the reference path and DESKETCH_KERNELS=compiled for the kernels; unset one"
        )
    if choice == "compiled" and _kernels is None:
        raise SketchError(
            f"DESKETCH_KERNELS=compiled, but there are no kernels: {absence()}; install a C++ compiler and reinstall"
        )
    return not pure and choice != "reference" and _kernels is not None


def isas() -> tuple[str, ...]:
    """The instruction sets usable here, best first."""
    return _ISAS


def isa() -> str:
    """The instruction set that sketches drawn now use."""
    choice = _variable("DESKETCH_ISA") or _ISAS[0]
    if choice not in _ISAS:
        raise SketchError(f"DESKETCH_ISA must be one of {', '.join(_ISAS)} on this machine, got {choice!r}")
    return choice


def plan(family: str, key: bytes, sizes: Mapping[str, float]) -> Any:
    """Draw the compiled operator of a family."""
    return _kernels.Plan(family, key, isa(), **sizes)


def rotate(key: bytes, salts: Sequence[int], x: npt.NDArray[np.float32], *, back: bool) -> npt.NDArray[np.float32]:
    """Rotate the rows of ``x`` for the one-bit code, each by the rotation of its salt."""
    out = np.empty(x.shape, dtype=np.float32)
    streams = np.asarray(salts, dtype=np.uint32)
    _kernels.rotate(key, isa(), streams, np.ascontiguousarray(x), out, back, workers(x.size, thread_limit()))
    return out


def decode_signs(
    key: bytes, salts: npt.NDArray[np.uint32], scales: npt.NDArray[np.float32], payloads: npt.NDArray[np.uint8], b: int
) -> npt.NDArray[np.float32]:
    """Scale times signs, rotated back, of one-bit messages whose last bytes hold b bits each."""
    out = empty((len(payloads), b), np.float32)
    start = payloads.shape[1] - -(-b // 8)
    _kernels.decode(key, isa(), salts, scales, payloads, start, out, workers(out.size, thread_limit()))
    return out


def trellis(goals: npt.NDArray[np.int32], table: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Packed bits of the vectors of the trellis code nearest to the rows of ``goals (n, T, V)``."""
    bits = np.zeros((len(goals), -(-goals.shape[1] // 8)), dtype=np.uint8)
    _kernels.search(isa(), goals, table, bits, workers(64 * goals.size, thread_limit()))
    return bits


def add_rows(total: npt.NDArray[np.float64], rows: npt.NDArray[np.float32], factors: npt.NDArray[np.float64]) -> None:
    """Add factor times row to the total, row after row, in float64."""
    _kernels.add_rows(isa(), rows, factors, total, workers(rows.size, thread_limit()))


crc16: Callable[[bytes | memoryview, int], int] = _kernels.crc16 if _kernels else crc_hqx
"""The CRC-16 of short frames and messages, continued from its second argument; ten times faster than `crc_hqx`."""


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised array for a kernel to fill; the memory of a long one is kept and used again when it is free."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    return np.empty(shape, kind) if size < LONG else _kernels.long_result(size).view(kind).reshape(shape)


def thread_limit() -> int:
    """The most threads that sketches drawn now may use."""
    text = _variable("DESKETCH_THREADS") or _variable("OMP_NUM_THREADS") or ""
    if not text:
        return _CORES
    if not text.isdigit() or text == "0":
        raise SketchError(f"DESKETCH_THREADS must be a positive integer, got {text!r}")
    return int(text)


def workers(size: int, limit: int) -> int:
    """Threads for ``size`` numbers: starting a thread must be worth it."""
    return max(1, min(limit, size // _WORK_PER_THREAD))
