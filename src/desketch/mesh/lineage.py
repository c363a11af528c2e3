"""Lineage: replicas that part when the network does, and meet again without counting anything twice.

Without a server, a partitioned network goes on in pieces, each piece with its own broadcasts.  A `Branch` is one line
of broadcasts: a replica, and the branches it came from.  Branches form a graph:

    a ── b            b follows a: who is still at a replays b's broadcasts and is at b
    a ── b ─┐
     └── c ─┴── m     b and c parted at a and meet in m: w_m = sum_i p_i w_i, p_i the share of training weight behind i

The mean is right because everything up to a is in both with total share one, and what either learnt alone enters once,
with its share.  To come to m, a node replays the broadcasts of every branch it has not seen, or takes a checkpoint when
that is fewer bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from desketch.fed.replica import Replica

__all__ = ["Branch", "meet"]


@dataclass(eq=False)
class Branch:
    """A replica, the branches it came from, and the bytes of its own broadcasts since then."""

    replica: Replica
    parents: tuple[Branch, ...] = ()
    log_bytes: int = 0
    _ancestors: frozenset[Branch] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._ancestors = frozenset(self.parents).union(*(p._ancestors for p in self.parents))

    def apply(self, t: int, broadcast: bytes | None) -> None:
        """Apply a broadcast of this branch."""
        self.replica.apply(t, broadcast)
        self.log_bytes += len(broadcast or b"")

    def fork(self) -> Branch:
        """A branch that starts where this one is."""
        return Branch(_copy(self.replica), (self,))

    def comes_from(self, other: Branch) -> bool:
        """Whether ``other`` is this branch or one it came from."""
        return other is self or other in self._ancestors

    def missing_bytes(self, seen: Branch) -> int:
        """Bytes that bring a node from ``seen`` to this branch: unseen broadcasts, or a checkpoint if that is less."""
        if seen is self:
            return 0
        unseen = ({self} | self._ancestors) - ({seen} | seen._ancestors)
        log = sum(branch.log_bytes for branch in unseen)
        return log if log <= 4 * self.replica.w.numel() else min(log, len(self.replica.checkpoint()))

    def forget(self) -> None:
        """Drop the past once nobody is behind any more."""
        self.parents, self._ancestors, self.log_bytes = (), frozenset(), 0


def meet(weights: Mapping[Branch, float]) -> Branch:
    """The branch at which nodes of the given branches (with their training weight) go on together."""
    tips = [b for b in weights if not any(other is not b and other.comes_from(b) for other in weights)]
    if len(tips) == 1:
        return tips[0]
    total = sum(weights[b] for b in tips)
    shares = [weights[b] / total for b in tips]
    merged = _copy(tips[0].replica)
    merged.load_state_dict(_mean([b.replica.state_dict() for b in tips], shares))
    return Branch(merged, tuple(tips))


def _copy(replica: Replica) -> Replica:
    """A replica with the same state; the channel keeps none and is shared."""
    twin = Replica(replica.w, optimizer=copy.deepcopy(replica.optimizer), channel=replica.channel)
    twin.version = replica.version
    return twin


def _mean(trees: Sequence[Any], shares: Sequence[float]) -> Any:
    """Mean of equally shaped state trees: tensors and floats averaged, of counters the largest, of words the first."""
    first = trees[0]
    if isinstance(first, dict):
        names: Iterator[str] = iter(dict.fromkeys(name for tree in trees for name in tree))
        return {name: _mean_of_present(name, trees, shares) for name in names}
    if isinstance(first, Tensor):
        return torch.stack([t * share for t, share in zip(trees, shares, strict=True)]).sum(0)
    if isinstance(first, float) and all(isinstance(x, float) for x in trees):
        return sum(x * share for x, share in zip(trees, shares, strict=True))
    return max(trees) if isinstance(first, int) else first


def _mean_of_present(name: str, trees: Sequence[Mapping[str, Any]], shares: Sequence[float]) -> Any:
    """The mean of an entry over the trees that have it (an optimiser's memory may be empty on one side)."""
    present = [(tree[name], share) for tree, share in zip(trees, shares, strict=True) if name in tree]
    total = sum(share for _, share in present)
    return _mean([value for value, _ in present], [share / total for _, share in present])
