"""Replicas of w, and the server's log that brings absentees back.

Everyone starts at the same w0 and applies the same decoded broadcasts through the same server optimiser, so all
replicas are equal bit for bit; `Replica.digest` (SHA-256 of w) says so.  An absentee at version v receives the
broadcasts after v, or the server's whole state when that is fewer bytes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import RunError, WireError
from desketch.fed.channel import Channel
from desketch.fed.optimizers import ServerOptimizer

__all__ = ["CatchUp", "Replica", "ReplicaLog", "digest"]

LARGEST_KEPT = 1e30


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

    def apply(self, t: int, broadcast: bytes | None) -> None:
        """Apply round t's broadcast; None is a round without an update.

        A `WireError` says that the broadcast holds no usable numbers; the replica then is not to be used any more.
        """
        if t != self.version + 1:
            raise RunError(
                f"replica at version {self.version} got round {t}, expected {self.version + 1}; ask to catch up"
            )
        if broadcast is not None:
            update = self.channel.decode_broadcast(t, broadcast)
            self.optimizer.apply(self.w, replace(update, vector=update.vector.to(self.w.device)))
            self._check_numbers(t)
        self.version = t

    def _check_numbers(self, t: int) -> None:
        """Every number this replica keeps is finite, with room to average and square it."""
        for name, kept in {"w": self.w, **self.optimizer.tensors, "eta": torch.tensor(self.optimizer.eta)}.items():
            top = float(torch.linalg.vector_norm(kept, ord=inf))
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
        return {"version": self.version, "w": self.w, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the replica of that state."""
        self.version = int(state["version"])
        self.w.copy_(state["w"])
        self.optimizer.load_state_dict(state["optimizer"])

    def checkpoint(self) -> bytes:
        """The state as one blob, as it would be sent."""
        return pack_tree(self.state_dict())


def digest(w: Tensor) -> str:
    """SHA-256 of w's float32 bytes, as a hexadecimal string."""
    return hashlib.sha256(w.cpu().numpy().tobytes()).hexdigest()


_VECTORS = 6  # a checkpoint is w and what an optimiser keeps: m, v, its maximum, the last step, a floor
_HEADER = 4096  # and some JSON


class ReplicaLog:
    """The server's memory of broadcasts, pruned to what can still be cheaper than a checkpoint."""

    def __init__(self, *, d: int) -> None:
        self._limit = 4 * d  # bytes of a checkpoint: at least w, then as last measured
        self._room = _VECTORS * 4 * d + _HEADER  # at most so many, then as last measured
        self._frames: deque[tuple[int, bytes]] = deque()
        self._since = 0  # frames after this round are all here
        self._upto = 0

    def append(self, t: int, broadcast: bytes | None) -> None:
        """Remember round t's broadcast."""
        self._upto = t
        if broadcast is not None:
            self._frames.append((t, broadcast))
            self._prune()  # also where nobody is ever absent

    def package(self, version: int, checkpoint: Callable[[], bytes]) -> CatchUp:
        """What a replica at ``version`` needs, whichever is smaller."""
        missed = CatchUp(version, self._upto, tuple((t, frame) for t, frame in self._frames if t > version))
        if version >= self._since and missed.size <= self._limit:
            return missed
        whole = CatchUp(version, self._upto, checkpoint=checkpoint())
        self._limit = self._room = whole.size
        package = missed if version >= self._since and missed.size <= whole.size else whole
        self._prune()
        return package

    def _prune(self) -> None:
        """Drop old frames that only a package larger than a checkpoint would hold."""
        total = sum(len(frame) for _, frame in self._frames)
        while total > self._room:
            t, frame = self._frames.popleft()
            self._since, total = t, total - len(frame)

    def state_dict(self) -> dict[str, Any]:
        """The log as a tree."""
        return {
            "limit": self._limit,
            "room": self._room,
            "since": self._since,
            "upto": self._upto,
            "rounds": [t for t, _ in self._frames],
            "frames": b"".join(frame for _, frame in self._frames),
            "lengths": [len(frame) for _, frame in self._frames],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._limit, self._room = int(state["limit"]), int(state["room"])
        self._since, self._upto = int(state["since"]), int(state["upto"])
        self._frames.clear()
        start = 0
        for t, length in zip(state["rounds"], state["lengths"], strict=True):
            self._frames.append((t, state["frames"][start : start + length]))
            start += length
