"""SparseLoCo: the largest entries of every chunk, two bits each, and a memory of what was not sent.

Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", 2025:

    e_w = decay e_w + (theta_w - theta),   send C(e_w),   e_w -= C(e_w),   theta += lr mean_w C(e_w)

C is `desketch.baselines.chunks`.  The memory takes the place of the outer momentum.  Payloads are all-gathered, so a
rank's bytes grow with the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from desketch.baselines.chunks import ChunkedTopK
from desketch.baselines.golomb import remainder_bits
from desketch.errors import ConfigError
from desketch.integrations.torch.exchange import Exchange, gather_bytes
from desketch.integrations.torch.methods.base import Delta, Heard, Method, Pieces, Said, whole
from desketch.keys import Key

__all__ = ["Sparse", "SparseMethod"]

_NO_KEY = Key(0)  # the code draws nothing


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """The ``share`` of entries that is sent, and how much of the memory survives a round."""

    share: float = 0.02
    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise ConfigError(
                f"share is the part of the entries that is sent, above 0 and at most 0.5, got {self.share}"
            )
        if not 0 <= self.decay <= 1:
            raise ConfigError(f"decay is what the memory keeps a round, from 0 to 1, got {self.decay}")


class SparseMethod(Method):
    """`Sparse` updates of d numbers; ``memory`` is e_w."""

    lr: ClassVar[float] = 2.0
    momentum: ClassVar[float] = 0.0

    def __init__(self, wire: Sparse, *, d: int) -> None:
        self.wire, self.d = wire, d
        self.code = ChunkedTopK(d=d, share=wire.share)
        self.memory: Tensor | None = None
        self._left: Tensor | None = None

    def prepare(self, t: int, delta: Delta) -> Said:
        """The payload of C(e_w); what it leaves is kept aside until `commit`."""
        p = delta[:].clone() if self.memory is None else delta[:].add(self.memory, alpha=self.wire.decay)
        payload = self.encode(p)
        self._left = p.sub_(self.decode(payload))
        return Said(payload=payload)

    def merge(self, t: int, delta: Delta, said: Said, heard: Heard, exchange: Exchange) -> Pieces:
        """Everyone's payload, decoded and averaged in the order of the ranks."""
        payloads = exchange.gather(said.payload, length=max(heard.lengths.values()))
        total = torch.zeros(self.d)
        for rank in heard.ranks:
            total.add_(self.decode(payloads[rank][: heard.lengths[rank]]))
        return whole(total.div_(len(heard.ranks)))

    def commit(self) -> None:
        """The memory moves on."""
        self.memory, self._left = self._left, None

    def encode(self, p: Tensor) -> bytes:
        """C(p) as bytes."""
        return self.code.encode(p, key=_NO_KEY, state={})

    def decode(self, payload: bytes) -> Tensor:
        """The sparse vector of a payload."""
        return self.code.decode(payload, key=_NO_KEY)

    def round_bytes(self, ranks: int) -> float:
        """As for k positions at random: what Golomb's code takes on average, signs, levels and scales."""
        k, chunks = self.code.k, len(self.code.counts)
        m = remainder_bits(k, self.d)
        beyond = (1 - k / self.d) ** 2**m  # that a gap, nearly geometric, reaches the next multiple of 2^m
        quotients = beyond / (1 - beyond)
        bits = k * (3 + m + quotients)
        return gather_bytes(round(bits / 8) + 3 * chunks + 1, ranks)

    def state_dict(self) -> dict[str, Any]:
        """The memory of this rank."""
        return {} if self.memory is None else {"memory": self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.memory = state["memory"].clone() if "memory" in state else None
