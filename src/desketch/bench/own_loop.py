"""CPU seconds of clients that train a user's module with a user's loader and optimiser, against the user's own loop.

Both sides run the same steps of ``torch.optim.AdamW`` on the same batches of the same DataLoaders.  The loop loads w,
trains and subtracts; a round of desketch also sketches, codes, frames, checks, decodes and applies.  What the channel
costs is timed apart, so that the ratio says what the generic client adds to the loop that a user would have written.
"""

from __future__ import annotations

from itertools import islice
from statistics import median
from time import process_time
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from desketch.bench.engine import timed_channel
from desketch.fed import Federation, FlatModel, LocalWork, make_optimizer, run
from desketch.fed.module_client import StepsClient
from desketch.keys import Key

__all__ = ["MARK", "measure"]

CLIENTS, STEPS, BATCH, HIDDEN = 10, 20, 32, 128
MARK = 1.1


def measure(*, repeats: int) -> dict[str, Any]:
    """Interleave rounds of both; medians of CPU seconds, and of their ratio with the channel left out."""
    torch.manual_seed(0)
    model = FlatModel(
        nn.Sequential(nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    )
    pool = TensorDataset(torch.randn(CLIENTS * 700, 784), torch.randint(10, (CLIENTS * 700,)))
    parts = torch.utils.data.random_split(pool, [700] * CLIENTS)
    loaders: list[DataLoader[Any]] = [DataLoader(part, batch_size=BATCH, shuffle=True) for part in parts]
    clock: list[float] = []
    federation = Federation(
        clients=[_client(c, model, loader) for c, loader in enumerate(loaders)],
        channel=timed_channel(clock)(compression=30.0, d=model.d, key=Key(0), codec="sign1"),
        optimizer=make_optimizer("sgd"),
        w0=model.flatten(),
    )
    rows = []
    for t in range(-1, repeats):  # the first of each warms up
        started = process_time()
        _plain_round(model, federation.server.replica.w, loaders)
        between = process_time()
        clock.clear()
        run(federation, rounds=federation.t + 1)
        ended = process_time()
        if t >= 0:
            rows.append((between - started, ended - between, sum(clock)))
    return {
        "clients": CLIENTS,
        "local_steps": STEPS,
        "d": model.d,
        "own_loop_cpu_seconds": median(plain for plain, _, _ in rows),
        "desketch_cpu_seconds": median(ours for _, ours, _ in rows),
        "sketch_wire_cpu_seconds": median(channel for _, _, channel in rows),
        "ratio": median((ours - channel) / plain for plain, ours, channel in rows),
        "mark": MARK,
    }


def _client(c: int, model: FlatModel, loader: DataLoader[Any]) -> StepsClient:
    return StepsClient(
        c,
        model,
        data=loader,
        loss=lambda module, batch: cross_entropy(module(batch[0]), batch[1]),
        work=LocalWork(steps=STEPS, eta=0.1, batch=BATCH),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    )


def _plain_round(model: FlatModel, w: torch.Tensor, loaders: list[DataLoader[Any]]) -> torch.Tensor:
    """The loop a user would write: load w, train on the loader, subtract, average."""
    total = torch.zeros_like(w)
    for loader in loaders:
        net = model.load(w).train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for x, y in islice(loader, STEPS):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(net(x), y))
            optimizer.step()
        total += model.flatten() - w
    return total / len(loaders)
