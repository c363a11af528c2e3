"""Peak: the most memory that a process takes between two lines, beyond what it had before them."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path
from types import TracebackType

__all__ = ["Peak"]

_STATUS = Path("/proc/self/status")


class Peak:
    """``with Peak() as memory: ...``, then ``memory.bytes``; exact where Linux resets its high-water mark."""

    bytes = 0

    def __enter__(self) -> Peak:
        gc.collect()
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the mark falls to what is resident now
            self._before = _kilobytes("VmRSS")
        except OSError:
            self._before = _highest()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        highest = _kilobytes("VmHWM") if _STATUS.exists() else _highest()
        self.bytes = 1024 * max(0, highest - self._before)


def _kilobytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _highest() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most
