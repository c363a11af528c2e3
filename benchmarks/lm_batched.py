"""Engine "in-process": all workers of a row in one process, their inner steps one batched, compiled computation.

The workers' parameters are stacked, forward and backward run under ``torch.func.vmap``, AdamW is elementwise and so the
same on a stack; a round goes through the methods of the outer step themselves, over ``local.LocalExchange``.
Same start, same batches, same keys as real ranks: losses agree to rounding (tests/integrations/torch/test_local.py).
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from desketch.core.flat import FlatParameters
from desketch.integrations.torch.auto import choose
from desketch.integrations.torch.local import LocalExchange, local_ranks, together
from desketch.integrations.torch.methods import defaults, make
from desketch.integrations.torch.methods.base import joined, whole
from desketch.integrations.torch.nesterov import Nesterov
from desketch.integrations.torch.round import exchange_update, report
from desketch.tasks.gpt import Gpt
from lm_bed import batch, cosine, draws, evaluate, loss_of, make_key, make_model, make_optimizer, parse, shard, texts
from lm_bed import wire_of_row as wire_of
from lm_channels import SERVED, ForwardWorkers

_CLIP = 1.0


class Workers:
    """W copies of the model as stacks of parameters, with one AdamW."""

    def __init__(self, job: dict[str, Any], symbols: int, *, lr: float, average: bool, compiled: bool) -> None:
        self.model, self.world, self.average = make_model(job, symbols), job["world"], average
        self.flat = FlatParameters(self.model)
        named = dict(self.model.named_parameters())
        self.stacks = {
            name: torch.nn.Parameter(named[name].detach().expand(self.world, *named[name].shape).clone())
            for name in self.flat.names
        }
        self.optimizer = make_optimizer(list(self.stacks.values()), job, lr=lr, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, cosine(job))
        shape = tuple(job[name] for name in ("context", "layers", "width"))
        self._gradients = _gradients(symbols, shape, compiled=compiled)

    def inner(self, rows: Tensor) -> None:
        """One inner step of every worker; ``rows (W, batch, context + 1)``."""
        for name, gradient in self.clipped(rows).items():
            self.stacks[name].grad = gradient
        self.optimizer.step()
        self.schedule.step()

    def clipped(self, rows: Tensor) -> dict[str, Tensor]:
        """The gradients of an inner step, each worker's clipped."""
        gradients, _ = self._gradients({name: p.detach() for name, p in self.stacks.items()}, rows)
        if self.average:
            gradients = {name: g.mean(0, keepdim=True).expand_as(g).clone() for name, g in gradients.items()}
        squares = sum(g.flatten(1).square().sum(1) for g in gradients.values())
        factor = (_CLIP / (torch.sqrt(squares) + 1e-6)).clamp(max=1.0)
        return {name: g.mul_(factor.view(-1, *[1] * (g.dim() - 1))) for name, g in gradients.items()}

    def vector(self, rank: int) -> Tensor:
        """A worker's parameters as one vector."""
        return torch.cat([p.detach()[rank].reshape(-1) for p in self.stacks.values()])

    def load(self, w: Tensor) -> None:
        """Every worker goes on from w."""
        with torch.no_grad():
            for name, value in self.flat.unflatten(w).items():
                self.stacks[name].copy_(value.expand_as(self.stacks[name]))

    def moments(self, rank: int) -> list[float]:
        """The mean second moment of every tensor of a worker."""
        states = (self.optimizer.state[p] for p in self.stacks.values())
        return [float(state["exp_avg_sq"][rank].mean()) if "exp_avg_sq" in state else 0.0 for state in states]

    def loss(self, rank: int, cut: Any, part: str, job: dict[str, Any]) -> list[float]:
        """Losses of a worker's model."""
        return evaluate(self.flat.load(self.vector(rank)), cut, part, job)


class Outer:
    """The outer step of all workers, as ``SketchedOuter`` does it on every rank."""

    def __init__(self, workers: Workers, job: dict[str, Any], name: str, settings: dict[str, Any]) -> None:
        self.workers, sizes = workers, workers.flat.sizes
        if name == "auto":
            choice = choose(settings.pop("budget"), steps=job["steps"], sizes=sizes, ranks=job["world"])
            self.wire, self.every, lr, momentum = choice.wire, choice.every, choice.outer_lr, choice.outer_momentum
        else:
            self.wire, self.every = wire_of(name, settings), settings.pop("every", 20)
            lr, momentum = defaults(self.wire)
        lr, momentum = settings.pop("outer_lr", lr), settings.pop("outer_momentum", momentum)
        weighted = settings.pop("weights", "auto") == "auto"
        if settings:
            raise SystemExit(
                f"{job['row']}: the in-process engine does not know {', '.join(settings)}; use --engine ranks"
            )
        self.ranks = local_ranks(job["world"])
        self.methods = [
            make(
                self.wire,
                sizes=sizes,
                key=make_key(job),
                momentum=momentum,
                moments=(lambda rank=rank: workers.moments(rank)) if weighted else None,
            )
            for rank in range(job["world"])
        ]
        self.nesterov = Nesterov(lr=lr, momentum=momentum)
        self.theta, self.round, self.seconds = workers.vector(0), 0, 0.0

    def step(self) -> None:
        """A round."""
        started = time.process_time()

        def one(exchange: LocalExchange) -> Tensor:
            method = self.methods[exchange.rank]
            mine = report(method, self.round, self.workers.vector(exchange.rank).sub_(self.theta))
            return joined(exchange_update(method, self.theta, mine, exchange)[0])

        updates = together(self.ranks, one)
        if not all(torch.equal(updates[0], u) for u in updates):
            raise SystemExit("the workers decoded different updates")
        self.nesterov.step(self.theta, whole(updates[0]))
        self.workers.load(self.theta)
        self.round += 1
        self.seconds += time.process_time() - started

    @property
    def bytes(self) -> float:
        """Sent and received, a worker."""
        return sum(one.sent + one.received for one in self.ranks) / len(self.ranks)

    def said(self) -> dict[str, float]:
        """What a table shows of the outer step."""
        return {"outer_lr": self.nesterov.lr, "outer_momentum": self.nesterov.momentum}


class Gossip(Outer):
    """CHOCO (Koloskova et al. 2019) with one bit a parameter, for the search: nobody gives up its own model.

    Rank w's model is known to all as xhat_w, corrected every round by C(x_w - xhat_w); then
    x_w += gamma (mean xhat - xhat_w).
    """

    def __init__(self, workers: Workers, job: dict[str, Any], name: str, settings: dict[str, Any]) -> None:
        self.gamma = settings.pop("gamma", 0.5)
        super().__init__(workers, job, "signs", {**settings, "weights": "none"})
        self.known = [self.theta.clone() for _ in self.ranks]

    def step(self) -> None:
        """A round."""

        def one(exchange: LocalExchange) -> Tensor:
            method, rank = self.methods[exchange.rank], exchange.rank
            p = self.workers.vector(rank).sub_(self.known[rank])
            u = joined(exchange_update(method, self.theta, report(method, self.round, p.clone()), exchange)[0])
            self.known[rank].add_(p.sub_(torch.from_numpy(method.feedback._memory.pop("own"))))
            return u

        self.theta.add_(together(self.ranks, one)[0])
        for rank, known in enumerate(self.known):
            w = self.workers.vector(rank).add_(self.theta - known, alpha=self.gamma)
            with torch.no_grad():
                for part, value in self.workers.flat.unflatten(w).items():
                    self.workers.stacks[part][rank].copy_(value)
        self.round += 1


@cache
def _gradients(symbols: int, shape: tuple[int, int, int], *, compiled: bool) -> Any:
    """Gradients and losses of stacked parameters and batches; compiled once for all rows of a process."""
    context, layers, width = shape
    model = Gpt(symbols=symbols, context=context, layers=layers, width=width)
    one = grad_and_value(lambda p, rows: loss_of(lambda x: functional_call(model, p, (x,)), rows))
    return torch.compile(vmap(one)) if compiled else vmap(one)


def run(job: dict[str, Any], *, compiled: bool = True) -> dict[str, Any]:
    """Train a row's workers and report their losses and bytes."""
    torch.set_num_threads(1)
    name, settings = parse(job["row"])
    lr = settings.pop("lr", job["lr"])
    symbols, cut = texts(job["texts"])
    world = job["world"]
    workers = _workers(job, name, settings, symbols=symbols, cut=cut, lr=lr, compiled=compiled)
    kind = {"gossip": Gossip, **SERVED}.get(name, Outer)
    outer = None if name in ("alone", "ddp", "demo") else kind(workers, job, name, settings)
    shards, generators = (
        [shard(cut, r, world, job["shards"]) for r in range(world)],
        [draws(job, r) for r in range(world)],
    )
    curve, started, d = [], time.process_time(), workers.flat.d

    def sent(step: int) -> float:
        if name == "ddp":
            return step * 2 * 2 * (world - 1) / world * 4 * d
        return outer.bytes if outer else getattr(workers, "bytes", 0.0)

    seen = range(world) if name in ("alone", "gossip") else range(1)
    for step in range(1, job["steps"] + 1):
        workers.inner(torch.stack([batch(shards[r], job, generators[r]) for r in range(world)]))
        if outer and (step % outer.every == 0 or step == job["steps"]):
            outer.step()
        if step % max(1, job["steps"] // 10) == 0:
            losses = [workers.loss(r, cut, "validation", job)[0] for r in seen]
            curve.append([step, round(sent(step)), round(sum(losses) / len(losses), 4)])
    cpu = time.process_time() - started
    return {
        **{part: _mean([workers.loss(r, cut, part, job) for r in seen]) for part in ("validation", "test")},
        "bytes": round(sent(job["steps"])),
        "d": d,
        "rounds": outer.round if outer else 0,
        **(outer.said() if outer else {}),
        "cpu_seconds": [round(cpu, 1)],
        "outer_cpu_seconds": [round(outer.seconds, 1)] if outer else [0.0],
        "curve": curve,
    }


def _workers(
    job: dict[str, Any], name: str, settings: dict[str, Any], *, symbols: int, cut: Any, **given: Any
) -> Workers | ForwardWorkers:
    if name == "demo":
        from lm_demo import DemoWorkers

        return DemoWorkers(job, symbols, settings=settings, **given)
    if name == "decomfl":
        return ForwardWorkers(job, symbols, cut)
    return Workers(job, symbols, average=name == "ddp", **given)


def _mean(rows: list[list[float]]) -> list[float]:
    return [round(sum(column) / len(column), 4) for column in zip(*rows, strict=True)]
