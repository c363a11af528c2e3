"""SketchedOuter: an outer step for any training loop under torch.distributed.  Start here.

Every rank trains its own copy theta_w for ``every`` steps with its own optimiser; then

    delta_w = theta_w - theta          what this rank's steps did since the last round
    u       = mean of the delta_w      as a method carries it: a one-bit sketch, all numbers, the largest entries
    M       = m M + u                  outer Nesterov, the same bits on every rank
    theta  += lr (u + m M),            theta_w = theta

::

    outer = SketchedOuter(model, optimizer, every=20, compression=10, key=Key(7))
    for batch in loader:
        loss = ...; loss.backward(); optimizer.step(); optimizer.zero_grad()
        outer.step()
    outer.finish()

theta and M live on the CPU.  Before a round anything is sent, ranks compare the round, a digest of theta and whether
their updates are finite; a round that fails has changed nothing: theta moves when all that travels has arrived.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from desketch.core.flat import FlatParameters
from desketch.errors import ConfigError, InputError, RunError
from desketch.fed.moments import drop_broken_state, second_moments
from desketch.fed.open_step import adaptive
from desketch.integrations.torch.agreement import digest, require_equal, short
from desketch.integrations.torch.auto import Choice, choose
from desketch.integrations.torch.exchange import Exchange
from desketch.integrations.torch.methods import AnyWire, defaults, make, wire_of
from desketch.integrations.torch.methods.base import Delta, Moved, Pieces, joined, whole
from desketch.integrations.torch.nesterov import Nesterov
from desketch.integrations.torch.round import OuterStats, Report, Skipped, exchange_update, report
from desketch.integrations.torch.site import Site
from desketch.keys import Key
from desketch.wire import Wire

__all__ = ["OuterStats", "SketchedOuter"]

_EVERY = 20


class SketchedOuter:
    """The outer step of one rank; all ranks of ``group`` build it alike, and call `step` equally often.

    Args:
        model: whose trainable parameters are averaged; buffers (running statistics) stay with each rank.
        optimizer: the inner optimiser, any; of Adam's kind, its second moments weigh the sketch.
        every: inner steps between rounds, 20 unless ``method="auto"`` chooses.
        wire: what travels: `Wire` (a sketch), `Dense` (DiLoCo), `Sparse` (SparseLoCo) or `Signs`.
        compression: short for ``wire=Wire(compression=...)``.
        method: a name for the usual wire: sketch, signs, diloco, diloco-int8, diloco-int4, sparseloco; or auto, which
            chooses wire and every by ``budget`` (bytes a parameter, sent and received by a rank in the whole run).
        steps: inner steps of the run, if known: a run of few rounds takes a smaller outer momentum.
        key: public; all ranks share it.
        outer_lr, outer_momentum: those of the outer step; by default what the method is known to work with.
        weights: "auto" weighs a sketch by Adam's second moments where the optimiser has them, "none" does not.
        group: the ranks that average, by default all of them; nothing else may use this group.
        site: ranks of a fast network that share one place in ``group`` (DDP inside, outer step between sites).
        overlap: exchange the updates of a round beside the inner steps of the next, and apply them one round late.

    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        *,
        key: Key,
        every: int | None = None,
        wire: AnyWire | None = None,
        compression: float | None = None,
        method: str | None = None,
        budget: float | None = None,
        steps: int | None = None,
        outer_lr: float | None = None,
        outer_momentum: float | None = None,
        weights: Literal["auto", "none"] = "auto",
        group: dist.ProcessGroup | None = None,
        site: dist.ProcessGroup | None = None,
        overlap: bool = False,
    ) -> None:
        if weights not in ("auto", "none"):
            raise ConfigError(f"weights must be auto or none, got {weights!r}")
        self.flat, self.optimizer, self.overlap = FlatParameters(model, local_statistics=True), optimizer, overlap
        self.site = Site(site) if site is not None else None
        if self.site is not None and group is None:
            raise ConfigError("site needs group, the group of the sites' first ranks; make it with dist.new_group")
        self.exchange = self._meet(group) if self.site is None or self.site.leads else None
        self.choice = self._choose(method, wire, compression, every, budget, steps)
        self.wire = self.choice.wire if self.choice else wire_of(method, wire, compression)
        self.every = self.choice.every if self.choice else _EVERY if every is None else every
        if not (isinstance(self.every, int) and self.every >= 1):
            raise ConfigError(f"every counts the inner steps between rounds and is at least 1, got {self.every!r}")
        if steps is not None and steps < 1:
            raise ConfigError(f"steps counts the inner steps of the run and is at least 1, got {steps}")
        lr, momentum = defaults(self.wire, rounds=steps // self.every if steps else None)
        if self.choice:
            lr, momentum = self.choice.outer_lr, self.choice.outer_momentum
        lr, momentum = lr if outer_lr is None else outer_lr, momentum if outer_momentum is None else outer_momentum
        self.nesterov = Nesterov(lr=lr, momentum=momentum)
        self.weights = "v^(-1/4)" if weights == "auto" and adaptive(optimizer) else "1"
        moments = None if self.weights == "1" else lambda: second_moments(optimizer, self._parameters())
        self.method = make(self.wire, sizes=self.flat.sizes, key=key, momentum=momentum, moments=moments)
        for caution in self._cautions():
            warnings.warn(caution, stacklevel=2)
        self._key = key
        self.theta = self.flat.flatten().cpu()
        self.round = self.count = 0
        self._agreed = False
        self._skipped: tuple[Skipped, ...] = ()
        self._pending: Future[Tensor] | None = None
        self._sent: Tensor | None = None  # where theta_w went on from when the pending update was sent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outer") if overlap else None

    def _meet(self, group: dist.ProcessGroup | None) -> Exchange:
        """The collectives of the ranks that average."""
        if not dist.is_initialized():
            raise RunError("there is no process group; call torch.distributed.init_process_group() first")
        # A group of its own, so that an exchange beside the inner steps never meets the collectives of others.
        return Exchange(dist.new_group() if group is None else group)

    @torch.no_grad()
    def step(self) -> bool:
        """Count one inner step; every ``every``-th call is a round, and returns True."""
        self._agree()
        if (self.count + 1) % self.every:
            self.count += 1
            return False
        self._together(self._overlapped if self.overlap else self._blocking)
        self.count += 1  # after the round: one that failed can be tried again
        return True

    @torch.no_grad()
    def finish(self) -> None:
        """End of training: complete what is under way, average what is left; the replicas are then equal."""
        self._agree()
        if self.overlap or self.count % self.every:
            self._together(self._last)

    @property
    def stats(self) -> OuterStats:
        """Rounds, payload bytes of this rank and the ranks that were left out."""
        sent, received = (self.exchange.sent, self.exchange.received) if self.exchange else (0, 0)
        return OuterStats(self.round, sent, received, self._skipped)

    def _blocking(self) -> Tensor:
        """A round while everybody waits; alone there is nothing to send, and theta follows the inner steps."""
        if self._alone:
            self.theta.copy_(self.flat.flatten())
        else:
            self.nesterov.step(self.theta, self._mean(self._report(Moved(self.flat, self.theta))))
        self.round += 1
        return self.theta

    def _overlapped(self) -> Tensor:
        """Apply the round that is under way, then start the next, and go on from where that will lead."""
        if self._alone:
            return self._blocking()
        assert self._thread is not None
        w = self._land() if self._pending is not None else self.flat.flatten().cpu()
        delta = w.sub_(self.theta)
        mine = self._report(delta.clone())
        if mine.fault:
            delta.zero_()  # everyone will leave this update out
        self._sent = self._expected(delta)
        self._pending = self._thread.submit(lambda: joined(self._mean(mine)))
        return self._sent.clone()

    def _expected(self, delta: Tensor) -> Tensor:
        """Theta after the round that begins now, as far as one rank knows: M, and its own update for the mean."""
        assert self.exchange is not None
        share = self.method.share(self.exchange.size)
        return delta.add_(self.theta) if share is None else self.nesterov.expected(self.theta, delta.mul_(share))

    def _land(self) -> Tensor:
        """Wait for the round under way and apply it: theta plus what this rank did since it sent its update."""
        assert self._pending is not None
        assert self._sent is not None
        pending, self._pending = self._pending, None
        u = pending.result()
        self.nesterov.step(self.theta, whole(u))
        self.round += 1
        w = self.flat.flatten().cpu().sub_(self._sent).add_(self.theta)
        self._sent = None
        return w

    def _last(self) -> Tensor:
        """Apply the round under way, if any, then a last one while everybody waits."""
        if self._pending is not None:
            self.flat.load(self._land())
        return self._blocking()

    @property
    def _alone(self) -> bool:
        return self.exchange is not None and self.exchange.size == 1

    def _report(self, delta: Delta) -> Report:
        """What this rank brings to the round, read off the inner optimiser now, while nothing moves."""
        mine = report(self.method, self.round, delta)
        if mine.fault:
            drop_broken_state(self.optimizer, self._parameters())
        return mine

    def _mean(self, mine: Report) -> Pieces:
        """The mean update of this round."""
        assert self.exchange is not None
        u, skipped = exchange_update(self.method, self.theta, mine, self.exchange)
        self._skipped += skipped
        for one in skipped:
            warnings.warn(str(one), stacklevel=2)
        return u

    def _together(self, do: Any) -> None:
        """Run one part of a round on the lead, and load the parameters it makes on every rank of the site."""
        self._check_parameters()
        if self.site is None:
            self.flat.load(do())
        elif self.site.leads:
            try:
                w = do()
            except Exception:
                self.site.give_up()
                raise
            self.site.give(w, self.round)
            self.flat.load(w)
        else:
            w, self.round = self.site.take(self.flat.flatten().cpu())
            self.flat.load(w)

    def synchronise(self, source: int = 0) -> None:
        """Take theta, M, round and count of rank ``source``; for ranks that join, or resume from another round."""
        if self.exchange is None or self._alone:
            return
        if self._pending is not None:
            raise RunError("an overlapped round is under way; call outer.finish() before synchronise()")
        place = torch.tensor([self.round, self.count, self.nesterov.M is not None])
        self.exchange.broadcast(place, source=source)
        self.exchange.broadcast(self.theta, source=source)
        if bool(place[2]):
            self.nesterov.M = torch.zeros_like(self.theta) if self.nesterov.M is None else self.nesterov.M
            self.exchange.broadcast(self.nesterov.M, source=source)
        else:
            self.nesterov.M = None
        self.round, self.count = int(place[0]), int(place[1])
        self.flat.load(self.theta)

    def state_dict(self) -> dict[str, Any]:
        """Everything of this rank to go on from here exactly, beside the state of model and optimiser."""
        pending = {"u": self._pending.result(), "sent": self._sent} if self._pending else {}  # first: it moves the rest
        return {
            "round": self.round,
            "count": self.count,
            "theta": self.theta,
            "names": list(self.flat.names),
            "nesterov": self.nesterov.state_dict(),
            "method": self.method.state_dict(),
            "bytes": [self.exchange.sent, self.exchange.received] if self.exchange else [0, 0],
            "skipped": [[one.round, one.rank, one.reason] for one in self._skipped],
            "pending": pending,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; load model and optimiser too, their states are not in it."""
        if list(state["names"]) != self.flat.names or state["theta"].numel() != self.flat.d:
            raise InputError(
                f"the state is of {len(state['names'])} tensors with {state['theta'].numel()} numbers, this model has "
                f"{len(self.flat.names)} with {self.flat.d} that can be trained; build and freeze the same model"
            )
        self.round, self.count = int(state["round"]), int(state["count"])
        self.theta.copy_(state["theta"])
        self.nesterov.load_state_dict(state["nesterov"])
        self.method.load_state_dict(state["method"])
        if self.exchange:
            self.exchange.sent, self.exchange.received = map(int, state["bytes"])
        self._skipped = tuple(Skipped(*one) for one in state["skipped"])
        self._pending = self._sent = None
        if state["pending"]:
            self._pending, self._sent = Future(), state["pending"]["sent"].clone()
            self._pending.set_result(state["pending"]["u"].clone())
        self._agreed = False

    def _agree(self) -> None:
        """Before the first step: every rank was built alike and starts from the same place."""
        if self._agreed:
            return
        if self.exchange is not None and not self._alone:
            require_equal(self._arguments(), self.exchange)
        self._agreed = True

    def _arguments(self) -> dict[str, str]:
        shapes = repr(list(zip(self.flat.names, self.flat.shapes, strict=True)))
        tensors = f"{len(self.flat.names)} tensors of {self.flat.d} numbers ({short(shapes)})"
        return {
            "every": str(self.every),
            "wire": repr(self.wire),
            "key": repr(self._key),
            "outer_lr": repr(self.nesterov.lr),
            "outer_momentum": repr(self.nesterov.momentum),
            "weights": self.weights,
            "overlap": str(self.overlap),
            "parameters": tensors,
            "round": f"{self.round} (step {self.count})",
            "start": digest(self.theta).hex(),
        }

    def _choose(
        self,
        method: str | None,
        wire: AnyWire | None,
        compression: float | None,
        every: int | None,
        budget: float | None,
        steps: int | None,
    ) -> Choice | None:
        if method != "auto":
            if budget is not None:
                raise ConfigError('budget is for method="auto"; leave it out, or let it choose')
            return None
        if wire is not None or compression is not None or every is not None:
            raise ConfigError('method="auto" chooses wire and every itself; give budget and steps only')
        if budget is None or steps is None:
            raise ConfigError('method="auto" needs budget (bytes a parameter in the whole run) and steps (inner steps)')
        ranks = self.exchange.size if self.exchange else 2
        return choose(budget, steps=steps, sizes=self.flat.sizes, ranks=ranks, adaptive=adaptive(self.optimizer))

    def _cautions(self) -> list[str]:
        """What a user should know of the wire before a run."""
        found = [self.wire.caution(self.flat.d)] if isinstance(self.wire, Wire) else []
        if self.choice is not None and not self.choice.worth_it:
            found.append(f'method="auto": {self.choice.why}')
        return [caution for caution in found if caution]

    def _parameters(self) -> list[nn.Parameter]:
        named = dict(self.flat.module.named_parameters())
        return [named[name] for name in self.flat.names]

    def _check_parameters(self) -> None:
        now = {name: tuple(p.shape) for name, p in self.flat.module.named_parameters() if p.requires_grad}
        then = dict(zip(self.flat.names, self.flat.shapes, strict=True))
        if now != then:
            changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
            raise RunError(
                f"the parameters that can be trained changed since the outer step was built: {', '.join(changed[:5])}; "
                "freeze them again, or call outer.finish() before the change and build a new SketchedOuter after it, "
                "on every rank"
            )
