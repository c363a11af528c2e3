"""CPU time of every sketch, both ways, as multiples of one read of the d numbers.

Every call draws a fresh R and takes the next of several vectors, twice as large together as the last cache, as an
update in training comes from memory; so does the read.  What the same costs while one vector stays in the cache is
stated beside it, as a multiple of a read of that vector.  Reads, kernels and peers take turns in one loop of one
process, so that whatever slows the machine slows all of them; medians of CPU time are compared.  A transpose writes
into vectors that are used again; into fresh memory it also pays for the pages, which is stated too.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import count, cycle
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from desketch.bench.peers import Peer

    Vector = npt.NDArray[np.float32]

__all__ = ["CALL_D", "COMPRESSION", "MARKS", "D", "marks", "measure"]

D, COMPRESSION = 1 << 24, 100
DENSE_D, DENSE_B = 1 << 16, 1000
CALL_D, CALL_B = 4096, 256
PEER_TURNS = 3
MOST_VECTORS = 16

# (name, family, options); a name plus " transpose" is the other direction
LONG: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("countsketch", "countsketch", {}),
    ("countsketch textbook", "countsketch", {"layout": "textbook"}),
    ("srht", "srht", {}),
    ("srht block=2^14", "srht", {"block": 1 << 14}),
    ("sparse1 nnz=4", "sparse1", {"nnz": 4}),
    ("sparse2 nnz=4", "sparse2", {"nnz": 4}),
    ("uniform", "uniform", {}),
)
DENSE: tuple[tuple[str, str, dict[str, Any]], ...] = (("gaussian", "gaussian", {}), ("ams", "ams", {}))

# item -> (unit, bound); a bound in "x faster" is a least, any other a most
MARKS: dict[str, tuple[str, float]] = {
    "countsketch": ("reads", 1.8),
    "countsketch transpose": ("reads", 1.5),
    "countsketch textbook": ("reads", 8.2),
    "countsketch textbook transpose": ("reads", 5.8),
    "srht": ("reads", 6.0),
    "srht transpose": ("reads", 6.0),
    "srht block=2^14": ("reads", 3.5),
    "sparse1 nnz=4": ("reads", 5.0),
    "uniform": ("reads", 1.1),
    "uniform transpose": ("reads", 1.3),
    "gaussian": ("ns per entry", 1.1),
    "ams": ("ns per entry", 0.08),
    "scipy clarkson_woodruff_transform": ("x faster", 300),
    "torch index_add_, fresh hashes": ("x faster", 50),
    "torch index_add_, cached hashes": ("x faster", 15),
    "torch.topk": ("x faster", 50),
    "torch FWHT": ("x faster", 100),
    "two threads": ("x faster", 1.5),
    "a call at d=4096": ("us", 15),
    "import of the extension": ("ms", 10),
}


@dataclass
class Clock:
    """CPU seconds by name, over the turns of one loop."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], object]) -> None:
        """Run ``work`` once, and remember what it cost."""
        started = process_time()
        work()
        self.seconds.setdefault(name, []).append(process_time() - started)

    def median(self, name: str) -> float:
        """The median CPU seconds of a name."""
        return median(self.seconds[name])


def measure(*, d: int, b: int, threads: int, repeats: int) -> dict[str, Any]:
    """Everything this command knows, as one document."""
    import numpy as np
    import torch

    from desketch.bench import peers as kernel_peers
    from desketch.core import compiled

    with _threads(threads):
        torch.set_num_threads(threads)
        rng = np.random.default_rng(0)
        g = rng.standard_normal(d, dtype=np.float32)
        small = g[: min(d, DENSE_D)].copy()
        dense_b = min(DENSE_B, len(small))
        inputs, outputs = cycle(_copies(g)), cycle(_copies(g))
        one, short = cycle([g]), cycle([small])
        peers = kernel_peers.peers(inputs, d, b, small, dense_b)
        clock, cached = Clock(), Clock()
        work = _calls(LONG, inputs, outputs, d, b)
        work |= _calls(DENSE, short, cycle([small.copy()]), len(small), dense_b)
        work |= _calls((_SMALL,), short, cycle([small.copy()]), len(small), len(small) // COMPRESSION)
        again = _calls(LONG, one, cycle([g.copy()]), d, b)
        for turn in range(repeats):
            for name, call in work.items():
                x = next(inputs)
                clock.time("read", partial(np.dot, x, x))
                clock.time(name, call)
            for name, call in again.items():
                cached.time("read", partial(np.dot, g, g))
                cached.time(name, call)
            if turn % max(1, repeats // PEER_TURNS) == 0:
                for peer in peers:
                    clock.time(peer.name, peer.call)
        calls = {"numpy": _call_us(np.zeros(CALL_D, np.float32)), "torch": _call_us(torch.zeros(CALL_D))}
    result = {
        "command": "desketch bench kernels",
        "d": d,
        "b": b,
        "threads": threads,
        "repeats": repeats,
        "machine": _machine(),
        "versions": {name: version(name) for name in ("desketch", "numpy", "scipy", "scikit-learn", "torch")},
        "isa": compiled.isa() if compiled.available() else "reference",
        "read": "numpy.dot(g, g)",
        "read_ms": 1e3 * clock.median("read"),
        "read_in_cache_ms": 1e3 * cached.median("read"),
        "kernels": _long_rows(clock, cached),
        "dense": _dense_rows(clock, len(small), dense_b),
        "peers": [_peer_row(clock, peer) for peer in peers],
        "two_threads": _two_threads(g, b),
        "call_us": calls,
        "import_ms": _import_ms(),
    }
    marked = compiled.available() and (d, b, threads) == (D, D // COMPRESSION, 1)
    return result | {"marks": marks(result) if marked else []}


_SMALL: tuple[str, str, dict[str, Any]] = ("countsketch, small", "countsketch", {})


def _copies(g: Vector) -> list[Vector]:
    """As many copies of g as fill the last cache twice."""
    copies = 1 + -(-2 * _last_cache_bytes() // g.nbytes)
    return [g.copy() for _ in range(min(copies, MOST_VECTORS))]


def _last_cache_bytes() -> int:
    """What Linux says of the third cache, in bytes; 64 MB where it says nothing."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return 1024 * int(file.read_text().strip().removesuffix("K")) if file.exists() else 64 << 20


def _calls(
    sketches: tuple[tuple[str, str, dict[str, Any]], ...],
    inputs: Iterator[Vector],
    outputs: Iterator[Vector],
    d: int,
    b: int,
) -> dict[str, Callable[[], object]]:
    """Each sketch both ways, a fresh R per call; the transpose into the next output, and into fresh memory."""
    from desketch import Key, draw

    turns = count()
    s = next(inputs)[:b].copy()
    work: dict[str, Callable[[], object]] = {}
    for name, family, options in sketches:

        def fresh(family: str = family, options: dict[str, Any] = options) -> Any:
            return draw(family, d=d, b=b, key=Key(next(turns)), **options)

        work[name] = lambda fresh=fresh: fresh().sketch(next(inputs))  # type: ignore[misc]
        work[f"{name} transpose"] = lambda fresh=fresh: fresh().desketch(s, out=next(outputs))  # type: ignore[misc]
        work[f"{name} transpose, fresh memory"] = lambda fresh=fresh: fresh().desketch(s)  # type: ignore[misc]
    return work


def _long_rows(clock: Clock, cached: Clock) -> list[dict[str, Any]]:
    rows = []
    for name, _, _ in LONG:
        for item in (name, f"{name} transpose"):
            row = {
                "item": item,
                "cpu_ms": 1e3 * clock.median(item),
                "reads": clock.median(item) / clock.median("read"),
                "reads_in_cache": cached.median(item) / cached.median("read"),
            }
            if item != name:
                row["reads_fresh_memory"] = clock.median(f"{item}, fresh memory") / clock.median("read")
            rows.append(row)
    return rows


def _dense_rows(clock: Clock, d: int, b: int) -> list[dict[str, Any]]:
    names = [item for name, _, _ in DENSE for item in (name, f"{name} transpose")]
    return [
        {"item": item, "d": d, "b": b, "cpu_ms": 1e3 * clock.median(item), "ns": 1e9 * clock.median(item) / (d * b)}
        for item in names
    ]


def _peer_row(clock: Clock, peer: Peer) -> dict[str, Any]:
    ours, theirs = clock.median(peer.against), clock.median(peer.name)
    return {
        "peer": peer.name,
        "against": peer.against,
        "d": peer.d,
        "b": peer.b,
        "cpu_ms": 1e3 * theirs,
        "ratio": theirs / ours,
    }


def _two_threads(g: Vector, b: int) -> dict[str, float]:
    """The best wall time of one thread over that of two, by sketch."""
    from desketch import Key, draw

    speed_up = {}
    for name, family, options in LONG[:3]:
        best: dict[int, float] = {}
        for threads in (1, 2) * 5:
            with _threads(threads):
                R = draw(family, d=len(g), b=b, key=Key(threads), **options)
            started = perf_counter()
            R.sketch(g)
            best[threads] = min(best.get(threads, float("inf")), perf_counter() - started)
        speed_up[name] = best[1] / best[2]
    return speed_up


def _call_us(x: Any, batch: int = 200) -> float:
    """CPU microseconds to draw R and sketch a short vector."""
    from desketch import Key, draw

    keys = [Key(i) for i in range(batch)]

    def once() -> float:
        started = process_time()
        for key in keys:
            draw("countsketch", d=CALL_D, b=CALL_B, key=key).sketch(x)
        return (process_time() - started) / batch

    return 1e6 * median(once() for _ in range(15))


_IMPORT = """
import importlib.machinery, importlib.util, sys, time
path = sys.argv[1]
started = time.process_time()
loader = importlib.machinery.ExtensionFileLoader("desketch._kernels", path)
importlib.util.module_from_spec(importlib.util.spec_from_loader("desketch._kernels", loader))
print(time.process_time() - started)
"""


def _import_ms() -> float | None:
    """CPU milliseconds to import the extension in a fresh interpreter."""
    from importlib.util import find_spec

    spec = find_spec("desketch._kernels")
    if spec is None or spec.origin is None:
        return None
    command = [sys.executable, "-c", _IMPORT, spec.origin]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    return 1e3 * median(float(text) for text in runs)


def marks(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Every mark, what was got, and whether it is reached; None where the machine had no two free cores to tell."""
    got: dict[str, float] = {row["item"]: row["reads"] for row in result["kernels"]}
    got |= {row["item"]: row["ns"] for row in result["dense"]}
    got |= {row["peer"]: row["ratio"] for row in result["peers"]}
    got["two threads"] = min(result["two_threads"].values())
    got["a call at d=4096"] = max(result["call_us"].values())
    got["import of the extension"] = result["import_ms"]
    rows = []
    for item, (unit, bound) in MARKS.items():
        reached: bool | None = got[item] >= bound if unit == "x faster" else got[item] <= bound
        if item == "two threads" and not reached and result["machine"]["free_cores"] < 2:
            reached = None
        rows.append({"item": item, "unit": unit, "mark": bound, "got": got[item], "reached": reached})
    return rows


def _machine() -> dict[str, Any]:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    return {
        "cpu": _cpu_name(),
        "cores": cores,
        "load": load,
        "free_cores": max(0.0, cores - max(0.0, load - 1)),  # this process is one of the load
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    """Draw with this many threads inside."""
    before = os.environ.get("DESKETCH_THREADS")
    os.environ["DESKETCH_THREADS"] = str(threads)
    try:
        yield
    finally:
        del os.environ["DESKETCH_THREADS"]
        if before is not None:
            os.environ["DESKETCH_THREADS"] = before
