"""Replicas of w, and the server's log that brings absentees back.

Everyone starts at the same w0 and applies the same decoded broadcasts through the same server optimiser, so all
replicas are equal bit for bit; `Replica.digest` (SHA-256 of w) says so.  An absentee at version v receives the
broadcasts after v, or the server's whole state when that is fewer bytes.
"""

from __future__ import annotations

import copy
import hashlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from desketch.core.tree import pack_tree, tree_size, unpack_tree
from desketch.core.vectors import largest
from desketch.errors import RunError, WireError
from desketch.fed.channel import Channel
from desketch.fed.optimizers import ServerOptimizer
from desketch.fed.update import Update

__all__ = ["CatchUp", "Replica", "ReplicaLog", "digest"]

LARGEST_KEPT = 1e30
_USUAL = 1e9  # a number of w, m, u, eta or t up to which no bound has to be computed to the end


@dataclass(frozen=True)
class CatchUp:
    """What takes a replica from ``since`` to ``upto``: the missed broadcasts in order, or a checkpoint."""

    since: int
    upto: int
    broadcasts: tuple[tuple[int, bytes], ...] = ()
    checkpoint: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(len(frame) for _, frame in self.broadcasts) + len(self.checkpoint or b"")


class Replica:
    """One copy of w at version t (0 before the first round)."""

    def __init__(self, w0: Tensor, *, optimizer: ServerOptimizer, channel: Channel) -> None:
        if w0.shape != (channel.d,):
            raise RunError(
                f"w0 has shape {tuple(w0.shape)}, the channel carries d={channel.d}; build both from one model"
            )
        self.w = w0.detach().clone()
        self.optimizer = optimizer
        self.channel = channel
        self.version = 0
        self._tops: dict[str, float] = {}  # what no number of w and of m exceeds, where it is known

    def apply(self, t: int, broadcast: bytes | None) -> None:
        """Apply round t's broadcast; None is a round without an update.

        A `WireError` says that the broadcast holds no usable numbers; the replica is then as it was.
        """
        if t != self.version + 1:
            raise RunError(
                f"replica at version {self.version} got round {t}, expected {self.version + 1}; ask to catch up"
            )
        if broadcast is not None:
            update = self.channel.decode_broadcast(t, broadcast)
            update = replace(update, vector=update.vector.to(self.w.device))
            if self._surely_usable(update):
                self.optimizer.apply(self.w, update)
            else:
                self._try(t, update)
            self.channel.learn(t, update)
        self.version = t

    def _surely_usable(self, update: Update) -> bool:
        """Whether bounds alone say that this update leaves every number far below the largest that is kept.

        They say so in any training that is one; then nothing needs to be copied for the case that it is not.
        """
        o = self.optimizer
        if not (0 <= o.eta <= _USUAL and update.norm <= _USUAL and o.t < _USUAL):
            return False
        if not self._tops or max(self._tops.values()) > _USUAL:
            self._tops = {"w": largest(self.w), "m": largest(o.tensors["m"]) if "m" in o.tensors else 0.0}
        u = largest(update.vector)
        p = o.largest_direction(u, self._tops["m"])
        if not max(u, p / 1e6, *self._tops.values()) <= _USUAL:
            return False
        step = p * max(2 * o.eta, 16.0 * (o.t + 1) if o.auto else 0.0)  # eta grows by less than 2, and starts below 16
        self._tops = {"w": self._tops["w"] + step, "m": max(u, self._tops["m"])}
        return True

    def _try(self, t: int, update: Update) -> None:
        last_good = copy.deepcopy(self.state_dict())
        try:
            self.optimizer.apply(self.w, update)
            self._check_numbers(t)
        except WireError:
            self.load_state_dict(last_good)
            raise
        self._tops = {}

    def _check_numbers(self, t: int) -> None:
        """Every number this replica keeps is finite, with room to average and square it."""
        for name, kept in {"w": self.w, **self.optimizer.tensors, "eta": torch.tensor(self.optimizer.eta)}.items():
            top = largest(kept.reshape(-1))
            if not top <= LARGEST_KEPT:  # NaN is not
                raise WireError(f"round {t} takes {name} to {top:g}, beyond {LARGEST_KEPT:g}")

    def catch_up(self, package: CatchUp) -> None:
        """Come up to date from a server's package."""
        if package.checkpoint is not None:
            self.load_state_dict(unpack_tree(package.checkpoint))
            return
        if package.since > self.version:
            raise RunError(
                f"replica at version {self.version} got what follows {package.since}; ask again with its version"
            )
        for t, frame in package.broadcasts:
            if t > self.version:
                self.version = t - 1  # rounds between two broadcasts had no update
                self.apply(t, frame)
        self.version = max(self.version, package.upto)

    def digest(self) -> str:
        """SHA-256 of w's float32 bytes."""
        return digest(self.w)

    def state_dict(self) -> dict[str, Any]:
        """Everything another replica needs to go on from here."""
        state = {"version": self.version, "w": self.w, "optimizer": self.optimizer.state_dict()}
        weights = getattr(self.channel, "tensor_weights", None)
        return state | ({"tensor_weights": weights.state_dict()} if weights else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the replica of that state."""
        self.version = int(state["version"])
        self.w.copy_(state["w"])
        self.optimizer.load_state_dict(state["optimizer"])
        if "tensor_weights" in state:
            self.channel.tensor_weights.load_state_dict(state["tensor_weights"])  # type: ignore[attr-defined]
        self._tops = {}

    def checkpoint_size(self) -> int:
        """The bytes of `checkpoint`, without making it."""
        return tree_size(self.state_dict())

    def checkpoint(self) -> bytes:
        """The state as one blob, as it would be sent."""
        return pack_tree(self.state_dict())


def digest(w: Tensor) -> str:
    """SHA-256 of w's float32 bytes, as a hexadecimal string."""
    return hashlib.sha256(memoryview(w.cpu().numpy()).cast("B")).hexdigest()  # type: ignore[arg-type]


_VECTORS = 6  # a checkpoint is w and what an optimiser keeps: m, v, its maximum, the last step, a floor
_HEADER = 4096  # and some JSON


class ReplicaLog:
    """The server's memory of broadcasts, pruned to what can still be cheaper than a checkpoint.

    How many bytes a replica has missed is a difference of two running sums; nothing is put together to count it.
    """

    def __init__(self, *, d: int) -> None:
        self._limit = 4 * d  # bytes of a checkpoint: at least w, then as last measured
        self._room = _VECTORS * 4 * d + _HEADER  # at most so many, then as last measured
        self._rounds: list[int] = []
        self._frames: list[bytes] = []
        self._ends: list[int] = []  # bytes of all broadcasts up to and with this one
        self._before = 0  # bytes of those that are gone
        self._since = 0  # frames after this round are all here
        self._upto = 0

    def append(self, t: int, broadcast: bytes | None) -> None:
        """Remember round t's broadcast."""
        self._upto = t
        if broadcast is not None:
            self._rounds.append(t)
            self._frames.append(broadcast)
            self._ends.append((self._ends[-1] if self._ends else self._before) + len(broadcast))
            self._prune()  # also where nobody is ever absent

    def package(self, version: int, checkpoint: Callable[[], bytes]) -> CatchUp:
        """What a replica at ``version`` needs, whichever is smaller."""
        made = cache(checkpoint)  # measured, then sent: packed once
        if self._prefers_log(version, lambda: len(made())):
            first = bisect_right(self._rounds, version)
            missed = tuple(zip(self._rounds[first:], self._frames[first:], strict=True))
            return CatchUp(version, self._upto, missed)
        return CatchUp(version, self._upto, checkpoint=made())

    def package_size(self, version: int, checkpoint_size: Callable[[], int]) -> int:
        """The bytes of `package`, without making it."""
        return self._missed(version) if self._prefers_log(version, checkpoint_size) else self._limit

    def _missed(self, version: int) -> int:
        first = bisect_right(self._rounds, version)
        return self._total - (self._ends[first - 1] if first else self._before)

    @property
    def _total(self) -> int:
        return self._ends[-1] if self._ends else self._before

    def _prefers_log(self, version: int, checkpoint_size: Callable[[], int]) -> bool:
        """Whether the missed broadcasts are all here and no larger than a checkpoint, which is measured if need be."""
        if version >= self._since and self._missed(version) <= self._limit:
            return True
        self._limit = self._room = checkpoint_size()
        prefers = version >= self._since and self._missed(version) <= self._limit
        self._prune()
        return prefers

    def _prune(self) -> None:
        """Drop old frames that only a package larger than a checkpoint would hold."""
        gone = 0
        while self._total - self._before > self._room:
            self._before, self._since = self._ends[gone], self._rounds[gone]
            gone += 1
        if gone:
            del self._rounds[:gone], self._frames[:gone], self._ends[:gone]

    def state_dict(self) -> dict[str, Any]:
        """The log as a tree."""
        return {
            "limit": self._limit,
            "room": self._room,
            "since": self._since,
            "upto": self._upto,
            "rounds": list(self._rounds),
            "frames": b"".join(self._frames),
            "lengths": [len(frame) for frame in self._frames],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._limit, self._room = int(state["limit"]), int(state["room"])
        self._since, self._upto = int(state["since"]), int(state["upto"])
        self._rounds, self._before = [int(t) for t in state["rounds"]], 0
        self._ends = list(accumulate(int(length) for length in state["lengths"]))
        starts = [0, *self._ends]
        self._frames = [state["frames"][a:b] for a, b in zip(starts, self._ends, strict=False)]
