"""CPU seconds of a federated round, against a plain PyTorch loop over the clients.

1,000 users, a cohort of 50, 5 local steps of 32 examples, a perceptron of 49,300 parameters.  The loop trains each
client with ``torch.optim.SGD`` and averages, nothing more; a round of desketch also draws R, sketches, codes, frames,
checks, decodes, de-sketches and applies.  The two are interleaved, medians of CPU time are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from desketch.fed import ClientData, Federation, FlatModel

__all__ = ["COHORT", "MARKS", "STEPS", "USERS", "measure", "timed_channel"]

USERS, COHORT, STEPS, BATCH, HIDDEN = 1000, 50, 5, 32, 62
MARKS = {"ratio": 0.6, "sketch_wire_share": 0.15}


def measure(*, repeats: int, compression: float, codec: str) -> dict[str, Any]:
    """Interleave rounds of both; seconds are medians of CPU time."""
    import torch

    torch.set_num_threads(1)
    federation, model, data, clock = _federation(compression, codec)
    plain: list[float] = []
    ours: list[float] = []
    shares: list[float] = []
    for t in range(-1, repeats):  # the first of each warms up
        started = process_time()
        _plain_round(model, federation.server.replica.w, data[:COHORT])
        between = process_time()
        clock.clear()
        _one_round(federation)
        ended = process_time()
        if t >= 0:
            plain.append(between - started)
            ours.append(ended - between)
            shares.append(sum(clock) / (ended - between))
    return {
        "command": "desketch bench engine",
        "users": USERS,
        "cohort": COHORT,
        "local_steps": STEPS,
        "batch": BATCH,
        "d": model.d,
        "b": round(model.d / compression),
        "codec": codec,
        "plain_loop_cpu_seconds": median(plain),
        "desketch_cpu_seconds": median(ours),
        "ratio": median(o / p for o, p in zip(ours, plain, strict=True)),
        "sketch_wire_share": median(shares),
        "marks": MARKS,
        "repeats": repeats,
        "torch": torch.__version__,
    }


def _federation(compression: float, codec: str) -> tuple[Federation, FlatModel, list[ClientData], list[float]]:
    import torch
    from torch import nn

    from desketch import Key
    from desketch.fed import (
        Attendance,
        ClientData,
        Federation,
        FlatModel,
        LocalWork,
        make_engine,
        make_optimizer,
        tensor_clients,
    )

    torch.manual_seed(0)
    pool, labels = torch.randn(12_000, 784), torch.randint(10, (12_000,))
    clients = [ClientData(c, pool[11 * c : 11 * c + 64], labels[11 * c : 11 * c + 64]) for c in range(USERS)]
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)))
    engine = make_engine(model, (pool[:2], labels[:2]))
    clock: list[float] = []
    federation = Federation(
        clients=tensor_clients(clients, engine, LocalWork(steps=STEPS, eta=0.05, batch=BATCH)),
        channel=timed_channel(clock)(compression=compression, d=model.d, key=Key(0), codec=codec),
        optimizer=make_optimizer("sgd"),
        w0=model.flatten(),
        attendance=Attendance(fraction=COHORT / USERS),
    )
    return federation, model, clients, clock


def timed_channel(clock: list[float]) -> Any:
    """A sketch channel that adds the CPU seconds spent in it to ``clock``."""
    from desketch.fed import SketchChannel

    class Timed(SketchChannel):
        pass

    def timed(name: str) -> Any:
        inner = getattr(SketchChannel, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            started = process_time()
            result = inner(self, *args, **kwargs)
            clock.append(process_time() - started)
            return result

        return method

    for name in ("encode_updates", "aggregate", "decode_broadcast"):
        setattr(Timed, name, timed(name))
    return Timed


def _one_round(federation: Federation) -> None:
    from desketch.fed import run

    run(federation, rounds=federation.t + 1)


def _plain_round(model: FlatModel, w: Tensor, cohort: Sequence[ClientData]) -> Tensor:
    """FedAvg as a tutorial writes it: load, train with torch.optim, subtract, average."""
    import torch
    from torch.nn.functional import cross_entropy

    total = torch.zeros_like(w)
    for data in cohort:
        net = model.load(w)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(STEPS):
            batch = torch.randperm(len(data.y))[:BATCH]
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(net(data.x[batch]), data.y[batch]))
            optimizer.step()
        total += model.flatten() - w
    return total / len(cohort)
