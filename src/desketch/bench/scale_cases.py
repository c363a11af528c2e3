"""What each process of `desketch.bench.scale` does: ``python -m desketch.bench.scale_cases CASE PART REPEATS``.

Rounds are those of a user who changes nothing but client momentum, which keeps a vector of R^d for every client and is
off: momentum and the automatic step at the server, the mean of the iterates, the default wire.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from desketch.api.client import Client
from desketch.api.parties import Parties, Settings
from desketch.bench.peak import Peak
from desketch.core.checkpoint import save_checkpoint
from desketch.core.flat import FlatModel
from desketch.core.on_demand import OnDemand
from desketch.fed import Federation, run
from desketch.wire import Wire

__all__ = ["BEDS", "Bed", "main"]

EXAMPLES, BATCH, ETA = 64, 32, 0.05
POOL = 4096


@dataclass(frozen=True)
class Bed:
    """A perceptron with these widths and how it is trained."""

    widths: tuple[int, ...]
    users: int
    cohort: int
    steps: int
    average: int = 10
    pool: int = 4096

    def module(self) -> nn.Module:
        """A fresh one, the same every time."""
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for n, m in zip(self.widths, self.widths[1:], strict=False):
            layers += [nn.Linear(n, m), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def clients(self) -> Sequence[Client]:
        """Slices of one pool of examples, made when they are asked for."""
        torch.manual_seed(1)
        x, y = torch.randn(self.pool, self.widths[0]), torch.randint(self.widths[-1], (self.pool,))

        def make(c: int) -> Client:
            start = 11 * c % (self.pool - EXAMPLES + 1)
            return Client(x[start : start + EXAMPLES], y[start : start + EXAMPLES])

        return OnDemand(self.users, make)

    def federation(self, clients: Sequence[Client]) -> Federation:
        """What `desketch.federate` makes of it."""
        settings = Settings(
            local_steps=self.steps,
            batch_size=BATCH,
            eta_local=ETA,
            wire=Wire(),
            privacy=None,
            server_optimizer="momentum",
            eta_global="auto",
            momentum=None,
            client_momentum=0.0,
            tensor_weights="none",
            average=self.average,
            fraction=self.cohort / self.users,
            seed=0,
            statistics="refuse",
            robust=None,
        )
        parties = Parties(self.module(), clients, settings, loss=cross_entropy, optimizer=None, evaluate=None)
        return parties.federation(rounds=1, evaluate_every=1)


TINY = 8, 4


BEDS = {
    "wide": Bed((784, 2900, 2600, 10), 10, 10, 1),
    "middle": Bed((784, 1226, 10), 1000, 50, 1),
    "mlp": Bed((784, 512, 10), 10, 10, 5),
    "users": Bed((784, 62, 10), 1000, 50, 5),
    "crowd": Bed((240, 10), 1_000_000, 1000, 5),
    "billion": Bed((31_600, 31_600, 48), 2, 2, 1, average=1, pool=128),
    "checkpoint": Bed((10_000, 9_990, 10), 2, 2, 1, average=1, pool=128),
}


def timed(bed: Bed, repeats: int) -> dict[str, Any]:
    """Rounds of both sides in turn; medians of CPU time."""
    clients, loop = bed.clients(), FlatModel(bed.module())
    federation = bed.federation(clients)
    rows = []
    for t in range(-1, repeats):  # the first of each warms up
        started = process_time()
        _plain_round(loop, federation.server.replica.w, clients[: bed.cohort], bed.steps)
        between = process_time()
        run(federation, rounds=federation.t + 1)
        ended = process_time()
        if t >= 0:
            rows.append((between - started, ended - between))
    return {
        "d": loop.d,
        "clients": bed.users,
        "cohort": bed.cohort,
        "local_steps": bed.steps,
        "repeats": repeats,
        "plain_loop_cpu_seconds": median(plain for plain, _ in rows),
        "desketch_cpu_seconds": median(ours for _, ours in rows),
        "ratio": median(ours / plain for plain, ours in rows),
    }


def _plain_round(model: FlatModel, w: Tensor, cohort: Sequence[Client], steps: int) -> Tensor:
    """FedAvg as a tutorial writes it: load, train with torch.optim, subtract, average."""
    total = torch.zeros_like(w)
    for data in cohort:
        net = model.load(w)
        optimizer = torch.optim.SGD(net.parameters(), lr=ETA)
        for _ in range(steps):
            batch = torch.randperm(EXAMPLES)[:BATCH]
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(net(data.data[batch]), data.y[batch]))
            optimizer.step()
        total += model.flatten() - w
    return total / len(cohort)


def peak(bed: Bed, repeats: int) -> dict[str, Any]:
    """The most memory of three rounds, in vectors of R^d, the model and what the server keeps included."""
    clients = _ready(bed)
    with Peak() as memory:
        federation = bed.federation(clients)
        run(federation, rounds=3)
    d = federation.channel.d
    return {"d": d, "peak_bytes": memory.bytes, "peak_vectors": memory.bytes / (4 * d)}


def _ready(bed: Bed) -> Sequence[Client]:
    """The bed's clients, after two small rounds have imported what is imported late."""
    tiny = Bed(TINY, 2, 2, 1)
    run(tiny.federation(tiny.clients()), rounds=2)
    return bed.clients()


def start(bed: Bed, repeats: int) -> dict[str, Any]:
    """What the clients cost before the first round."""
    clients = _ready(bed)
    with Peak() as memory:
        started = process_time()
        bed.federation(clients)
        spent = process_time() - started
    return {"start_cpu_seconds": spent, "start_megabytes": memory.bytes / 1e6}


def billion(bed: Bed, repeats: int) -> dict[str, Any]:
    """Two rounds and a checkpoint: peak memory, and the CPU seconds of each."""
    torch.set_num_threads(os.cpu_count() or 1)
    clients = _ready(bed)
    with Peak() as memory, tempfile.TemporaryDirectory() as folder:
        federation = bed.federation(clients)
        seconds = []
        for t in (1, 2):
            started = process_time()
            run(federation, rounds=t)
            seconds.append(process_time() - started)
        started, begun = process_time(), perf_counter()
        save_checkpoint(Path(folder), federation.state_dict(), t=federation.t)
        ended = {"checkpoint_cpu_seconds": process_time() - started, "checkpoint_seconds": perf_counter() - begun}
    d = federation.channel.d
    vectors = memory.bytes / (4 * d)
    return {"d": d, "round_cpu_seconds": seconds, "peak_bytes": memory.bytes, "peak_vectors": vectors} | ended


def checkpoint(bed: Bed, repeats: int) -> dict[str, Any]:
    """A checkpoint in turn with writing as many bytes to a file and flushing it, by the clock."""
    federation = bed.federation(bed.clients())
    run(federation, rounds=2)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(max(3, repeats)):
            begun = perf_counter()
            save_checkpoint(Path(folder), federation.state_dict(), t=federation.t)
            between = perf_counter()
            size = next(Path(folder).glob("*.safetensors")).stat().st_size
            _write_bytes(Path(folder) / "bytes", federation.server.replica.w, size)
            rows.append((between - begun, perf_counter() - between))
    ratio = median(ours / plain for ours, plain in rows)
    written = {"bytes": size, "write_seconds": median(plain for _, plain in rows)}
    return {"d": federation.channel.d, "ratio": ratio, "checkpoint_seconds": median(o for o, _ in rows)} | written


def _write_bytes(path: Path, w: Tensor, size: int) -> None:
    source = memoryview(w.numpy()).cast("B")  # type: ignore[arg-type]
    with path.open("wb", buffering=0) as file:
        while (left := size - file.tell()) > 0:
            file.write(source[: min(left, 8 << 20)])
        os.fsync(file.fileno())
    path.unlink()


def rounds(bed: None, repeats: int) -> dict[str, Any]:
    """CPU seconds of the first and of the last 500 rounds of a command, read from outside."""
    T, part = 5000, 500
    with tempfile.TemporaryDirectory() as folder:
        settings = "--clients 1000 --fraction 0.01 --partition iid --quiet"
        command = [
            sys.executable,
            "-m",
            "desketch",
            "train",
            *settings.split(),
            "--rounds",
            str(T),
            "--out",
            folder + "/run",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        marks = dict.fromkeys((part, 2 * part, T - part, T - 1))
        rows, seen = Path(folder, "run", "metrics.jsonl"), 0
        with _when_there(rows, process).open("rb") as lines:
            while process.poll() is None and seen < T - 1:
                seen += lines.read().count(b"\n")
                for mark in marks:
                    if seen >= mark and marks[mark] is None:
                        marks[mark] = (seen, _cpu_seconds(process.pid))
                time.sleep(0.02)
        if process.wait():
            raise SystemExit(f"desketch train ended with {process.returncode}")
    (a, a_cpu), (b, b_cpu), (y, y_cpu), (z, z_cpu) = marks.values()  # type: ignore[misc]
    first, last = (b_cpu - a_cpu) / (b - a), (z_cpu - y_cpu) / (z - y)
    return {"rounds": T, "first_cpu_seconds": first, "last_cpu_seconds": last, "last_by_first": last / first}


def _when_there(path: Path, process: subprocess.Popen[bytes]) -> Path:
    while not path.exists() and process.poll() is None:
        time.sleep(0.02)
    return path


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(bed: None, repeats: int) -> dict[str, Any]:
    """CPU seconds of one round on the digits, and of importing torch alone."""
    with tempfile.TemporaryDirectory() as folder:
        names = iter(range(1000))
        one = [sys.executable, "-m", "desketch", "train", "--rounds", "1", "--quiet", "--out"]
        ours = [_spent([*one, f"{folder}/{next(names)}"]) for _ in range(3)]
        bare = [_spent([sys.executable, "-c", "import torch"]) for _ in range(3)]
    return {"cpu_seconds": median(ours) - median(bare), "torch_cpu_seconds": median(bare)}


def account(bed: None, repeats: int) -> dict[str, Any]:
    """CPU seconds of one question."""
    flags = "--examples 500 --batch 32 --local-steps 5 --rounds 100 --noise-multiplier 1.1 --delta 1e-5"
    command = [sys.executable, "-m", "desketch", "account", *flags.split()]
    return {"cpu_seconds": median(_spent(command) for _ in range(5))}


def _spent(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


_ONCE: dict[str, Callable[..., dict[str, Any]]] = {
    "billion": billion,
    "checkpoint": checkpoint,
    "rounds": rounds,
    "train": train,
    "account": account,
}
_PARTS: dict[str, Callable[..., dict[str, Any]]] = {"time": timed, "peak": peak, "start": start}


def main(name: str, part: str, repeats: int) -> dict[str, Any]:
    """One part of one case."""
    torch.set_num_threads(1)
    return (_ONCE[name] if part == "once" else _PARTS[part])(BEDS.get(name), repeats)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
