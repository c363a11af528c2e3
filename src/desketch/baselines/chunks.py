"""The largest entries of every chunk, two bits each: the code of SparseLoCo.

Sarfi, Thérien, Lidin, Belilovsky, "Communication efficient LLM pre-training with SparseLoCo", 2025: C keeps the k
entries of largest magnitude of each chunk of 4096.  On the wire: positions in Golomb code, then a sign and one bit that
says which of the chunk's two magnitudes is meant; a magnitude is the mean of those it stands for.  C is biased: wrap it
in `ErrorFeedback`, whose ``decay`` takes the place of the paper's outer momentum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.baselines.compressor import Compressor, SenderState
from desketch.baselines.golomb import check_padding, decode_positions, encode_positions, pack_bits, unpack_bits
from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header

__all__ = ["CHUNK", "ChunkedTopK"]

CHUNK = 4096
_SCALES = CODEC_TABLE["f16"]


class ChunkedTopK(Compressor):
    """The ``share`` of largest entries of every chunk of d numbers, at least one of each."""

    def __init__(self, *, d: int, share: float) -> None:
        if not 0 < share <= 1:
            raise InputError(f"share is the part of every chunk that is sent, above 0 and at most 1, got {share}")
        self.d = d
        self.counts = [max(1, round(share * min(CHUNK, d - start))) for start in range(0, d, CHUNK)]
        self.k = sum(self.counts)
        self._chunk = np.repeat(np.arange(len(self.counts)), self.counts)  # of every entry that is sent

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Scales of the chunks, then positions, signs and levels."""
        index, chunk = self._largest(x), self._chunk
        values = x.numpy()[index]
        magnitude = np.abs(values)
        upper = magnitude > (_sums(magnitude, chunk) / np.array(self.counts))[chunk]
        high = _sums(magnitude * upper, chunk) / np.maximum(_sums(upper, chunk), 1)
        low = _sums(magnitude * ~upper, chunk) / np.maximum(_sums(~upper, chunk), 1)
        high = np.where(high > 0, high, low)  # all alike: none is above the mean
        scales = _SCALES.encode(high.astype(np.float32)[None], self._header(), ()).tobytes()
        parts = np.divide(255 * low, high, out=np.zeros_like(high), where=high > 0)
        levels = np.clip(np.rint(parts), 0, 255).astype(np.uint8).tobytes()
        bits = [encode_positions(index, self.d), (values < 0).astype(np.uint8), upper.astype(np.uint8)]
        return scales + levels + pack_bits(np.concatenate(bits))

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """The sparse vector of a payload."""
        n, chunk = len(self.counts), self._chunk
        start = _SCALES.size(n)
        if len(payload) <= start + n:
            raise WireError(f"a sparse payload has at least {start + n + 1} bytes here, got {len(payload)}")
        high = _SCALES.decode(np.frombuffer(payload[:start], np.uint8)[None], self._header())[0]
        low = high * (np.frombuffer(payload[start : start + n], np.uint8).astype(np.float32) / np.float32(255))
        positions, rest = decode_positions(unpack_bits(payload[start + n :]), self.k, self.d)
        if len(rest) < 2 * self.k:
            raise WireError(f"a sparse payload must hold {self.k} signs and levels, its bits end before")
        check_padding(rest[2 * self.k :])
        value = np.where(rest[self.k : 2 * self.k] == 1, high[chunk], low[chunk])
        out = np.zeros(self.d, dtype=np.float32)
        out[positions] = np.where(rest[: self.k] == 1, -value, value)
        return torch.from_numpy(out)

    def _largest(self, x: Tensor) -> npt.NDArray[np.int64]:
        """Positions of the largest entries of every chunk, increasing."""
        whole = self.d // CHUNK
        found = []
        if whole:
            rows = x[: whole * CHUNK].view(whole, CHUNK).abs().topk(self.counts[0], dim=1, sorted=False).indices
            found.append((rows + CHUNK * torch.arange(whole)[:, None]).flatten())
        if self.d % CHUNK:
            found.append(x[whole * CHUNK :].abs().topk(self.counts[-1], sorted=False).indices + whole * CHUNK)
        index: npt.NDArray[np.int64] = torch.cat(found).sort().values.numpy()
        return index

    def _header(self) -> Header:
        n = len(self.counts)
        return Header(run=0, round=0, family="none", d=n, b=n, key=Key(0), codec="f16")


def _sums(values: npt.NDArray[Any], chunk: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.bincount(chunk, weights=values).astype(np.float64)
