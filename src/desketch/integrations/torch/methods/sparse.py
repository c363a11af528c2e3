"""SparseLoCo: the largest entries of every chunk, two bits each, and a memory of what was not sent.

Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", 2025:

    e_w = decay e_w + (theta_w - theta),   send C(e_w),   e_w -= C(e_w),   theta += lr mean_w C(e_w)

C keeps the k entries of largest magnitude of each chunk of 4096.  On the wire: positions in Golomb code, then a sign
and one bit that says which of the chunk's two magnitudes is meant; a magnitude is the mean of those it stands for.
The memory takes the place of the outer momentum.  Payloads are all-gathered, so a rank's bytes grow with the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.baselines.golomb import decode_positions, encode_positions, pack_bits, remainder_bits, unpack_bits
from desketch.errors import ConfigError, WireError
from desketch.integrations.torch.exchange import Exchange, gather_bytes
from desketch.integrations.torch.methods.base import Heard, Method, Said
from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header

__all__ = ["CHUNK", "Sparse", "SparseMethod"]

CHUNK = 4096
_Bits = npt.NDArray[np.uint8]


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
        self.counts = [max(1, round(wire.share * n)) for n in _chunks(d)]
        self.k = sum(self.counts)
        self.memory: Tensor | None = None
        self._left: Tensor | None = None

    def prepare(self, t: int, delta: Tensor) -> Said:
        """The payload of C(e_w); what it leaves is kept aside until `commit`."""
        p = delta.clone() if self.memory is None else delta.add(self.memory, alpha=self.wire.decay)
        payload = self.encode(p)
        self._left = p.sub_(self.decode(payload))
        return Said(payload=payload)

    def merge(self, t: int, delta: Tensor, said: Said, heard: Heard, exchange: Exchange) -> Tensor:
        """Everyone's payload, decoded and averaged in the order of the ranks."""
        payloads = exchange.gather(said.payload, length=max(heard.lengths.values()))
        total = delta.zero_()
        for rank in heard.ranks:
            total.add_(self.decode(payloads[rank][: heard.lengths[rank]]))
        return total.div_(len(heard.ranks))

    def commit(self) -> None:
        """The memory moves on."""
        self.memory, self._left = self._left, None

    def encode(self, p: Tensor) -> bytes:
        """C(p) as bytes."""
        index, chunk = self._largest(p), np.repeat(np.arange(len(self.counts)), self.counts)
        values = p.numpy()[index]
        magnitude = np.abs(values)
        upper = magnitude > (_sums(magnitude, chunk) / np.array(self.counts))[chunk]
        high = _sums(magnitude * upper, chunk) / np.maximum(_sums(upper, chunk), 1)
        low = _sums(magnitude * ~upper, chunk) / np.maximum(_sums(~upper, chunk), 1)
        high = np.where(high > 0, high, low)  # all alike: none is above the mean
        scales = CODEC_TABLE["f16"].encode(high.astype(np.float32)[None], self._header(), ()).tobytes()
        parts = np.divide(255 * low, high, out=np.zeros_like(high), where=high > 0)
        levels = np.clip(np.rint(parts), 0, 255).astype(np.uint8).tobytes()
        bits = [encode_positions(index, self.d), (values < 0).astype(np.uint8), upper.astype(np.uint8)]
        return scales + levels + pack_bits(np.concatenate(bits))

    def decode(self, payload: bytes) -> Tensor:
        """The sparse vector of a payload."""
        n = len(self.counts)
        start = CODEC_TABLE["f16"].size(n)
        if len(payload) <= start + n:
            raise WireError(f"a sparse payload has at least {start + n + 1} bytes here, got {len(payload)}")
        high = CODEC_TABLE["f16"].decode(np.frombuffer(payload[:start], np.uint8)[None], self._header())[0]
        low = high * (np.frombuffer(payload[start : start + n], np.uint8).astype(np.float32) / np.float32(255))
        positions, rest = decode_positions(unpack_bits(payload[start + n :]), self.k, self.d)
        if len(rest) < 2 * self.k:
            raise WireError(f"a sparse payload must hold {self.k} signs and levels, its bits end before")
        chunk = np.repeat(np.arange(n), self.counts)
        value = np.where(rest[self.k : 2 * self.k] == 1, high[chunk], low[chunk])
        out = np.zeros(self.d, dtype=np.float32)
        out[positions] = np.where(rest[: self.k] == 1, -value, value)
        return torch.from_numpy(out)

    def round_bytes(self, ranks: int) -> float:
        """As for k positions at random: what Golomb's code takes on average, signs, levels and scales."""
        m = remainder_bits(self.k, self.d)
        beyond = (1 - self.k / self.d) ** 2**m  # that a gap, nearly geometric, reaches the next multiple of 2^m
        quotients = beyond / (1 - beyond)
        bits = self.k * (3 + m + quotients)
        return gather_bytes(round(bits / 8) + 3 * len(self.counts) + 1, ranks)

    def state_dict(self) -> dict[str, Any]:
        """The memory of this rank."""
        return {} if self.memory is None else {"memory": self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.memory = state["memory"].clone() if "memory" in state else None

    def _largest(self, p: Tensor) -> npt.NDArray[np.int64]:
        """Positions of the largest entries of every chunk, increasing."""
        whole = self.d // CHUNK
        found = []
        if whole:
            rows = p[: whole * CHUNK].view(whole, CHUNK).abs().topk(self.counts[0], dim=1, sorted=False).indices
            found.append((rows + CHUNK * torch.arange(whole)[:, None]).flatten())
        if self.d % CHUNK:
            found.append(p[whole * CHUNK :].abs().topk(self.counts[-1], sorted=False).indices + whole * CHUNK)
        index: npt.NDArray[np.int64] = torch.cat(found).sort().values.numpy()
        return index

    def _header(self) -> Header:
        n = len(self.counts)
        return Header(run=0, round=0, family="none", d=n, b=n, key=Key(0), codec="f16")


def _chunks(d: int) -> list[int]:
    return [min(CHUNK, d - start) for start in range(0, d, CHUNK)]


def _sums(values: npt.NDArray[Any], chunk: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.bincount(chunk, weights=values).astype(np.float64)
