"""The baselines of the federated tables on the language-model bed: a server that averages what four workers send it.

A row names one of `desketch.baselines.methods` and a point of its grid: "stc:density=0.02,every=60,eta_global=2".  The
workers train as in every other row, with AdamW; updates go through the method's own channel and the method's server
optimiser.  Bytes are counted as in every other row, by collectives: each of W ranks serves a W-th part of the numbers,
so it sends and receives (W-1)/W of an update and of an answer, each way.  (Of a star with a server apart a worker's
share would be one of each.)  DeComFL's workers take no gradient steps: they measure slopes, as in the federated tables.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from desketch.baselines.decomfl import zeroth_order_clients
from desketch.baselines.methods import METHODS, Wiring
from desketch.core.flat import FlatModel
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.optimizers import make_optimizer
from lm_bed import Job, Texts, evaluate, make_key, make_model, shard


class Served:
    """The rounds of a method with a server."""

    def __init__(self, workers: Any, job: Job, name: str, settings: dict[str, Any]) -> None:
        self.workers, self.every, method = workers, settings.pop("every"), METHODS[name]
        self.setting = {**method.grid[0], **settings}
        wiring = Wiring(
            shapes=tuple(workers.flat.shapes),
            d=workers.flat.d,
            key=make_key(job).fold_in(name),
            local_steps=self.every,
        )
        self.channel = method.channel(wiring, self.setting)
        step = {name: self.setting.get(name) for name in ("eta_global", "beta")}
        self.optimizer = make_optimizer(self.setting["optimizer"], **step)
        self.theta, self.round, self.bytes, self.seconds = workers.vector(0), 0, 0.0, 0.0

    def step(self) -> None:
        """A round: every worker's update up, the server's answer down."""
        started, ranks = time.process_time(), range(self.workers.world)
        frames = self.channel.encode_updates(self.round, self.updates(), clients=ranks, weights=[1.0] * len(ranks))
        served = self.channel.aggregate(self.round, dict(zip(ranks, frames, strict=True)))
        if served.broadcast is None:
            raise SystemExit(f"round {self.round} came to nothing: {served.void or served.refused}")
        both = sum(map(len, frames)) / len(ranks) + len(served.broadcast)
        self.bytes += 2 * (len(ranks) - 1) / len(ranks) * both
        self.optimizer.apply(self.theta, self.channel.decode_broadcast(self.round, served.broadcast))
        self.workers.load(self.theta)
        self.round += 1
        self.seconds += time.process_time() - started

    def updates(self) -> Tensor:
        """What each worker's channel is given, a row a worker."""
        return torch.stack([self.workers.vector(rank).sub_(self.theta) for rank in range(self.workers.world)])

    def said(self) -> dict[str, Any]:
        """What a table shows of the outer step."""
        plain = self.setting["optimizer"] == "sgd"
        return {"outer_lr": self.setting["eta_global"], "outer_momentum": 0.0 if plain else self.optimizer.beta}


class ServedForward(Served):
    """DeComFL: a worker's update is its slopes along the round's directions."""

    def __init__(self, workers: ForwardWorkers, job: Job, name: str, settings: dict[str, Any]) -> None:
        super().__init__(workers, job, name, settings)
        work = LocalWork(steps=self.every, eta=self.setting["eta_local"], batch=job["batch"], seed=job["seed"])
        self.clients = zeroth_order_clients(self.channel, workers.data, workers.flat, work)

    def updates(self) -> Tensor:
        """The workers' coefficients; all take their steps side by side."""
        return self.clients[0].crew.updates(self.theta, self.clients, self.round)[0]


class ForwardWorkers:
    """Workers that only ever evaluate their loss, on windows of their shards: one model, no optimiser."""

    def __init__(self, job: Job, symbols: int, cut: Texts) -> None:
        self.world = job["world"]
        self.flat = FlatModel(make_model(job, symbols), lambda out, y: cross_entropy(out.flatten(0, 1), y.flatten()))
        self.data = [_windows(shard(cut, rank, self.world, job["shards"]), rank, job) for rank in range(self.world)]
        self.w = self.flat.flatten()

    def inner(self, rows: Tensor) -> None:
        """Nothing: the steps are taken in the round."""

    def vector(self, rank: int) -> Tensor:
        """The one model that all have."""
        return self.w.clone()

    def load(self, w: Tensor) -> None:
        """Go on from w."""
        self.w = w.clone()

    def loss(self, rank: int, cut: Texts, part: str, job: Job) -> list[float]:
        """Losses of the model."""
        return evaluate(self.flat.load(self.w), cut, part, job)


def _windows(codes: Tensor, rank: int, job: Job) -> ClientData:
    windows = codes.unfold(0, job["context"] + 1, 8)
    return ClientData(rank, windows[:, :-1], windows[:, 1:])


SERVED = {**dict.fromkeys(("fedadam", "eden", "topk", "stc", "fetchsgd"), Served), "decomfl": ServedForward}
"""The methods that are in the federated tables and have no outer step of their own."""
