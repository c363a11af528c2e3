"""The k largest entries: with their values (top-k), or as signs times one magnitude (sparse ternary).

Top-k: Aji, Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017.
Sparse ternary: Sattler, Wiedemann, Müller, Samek, "Robust and communication-efficient federated learning from non-IID
data", IEEE TNNLS 2019: positions in Golomb code, signs, and mu = the mean magnitude of the k entries; two-way, with
error feedback at the clients and at the server.  Both are biased: wrap them in `ErrorFeedback`.
"""

from __future__ import annotations

import struct

import numpy as np
import torch
from torch import Tensor

from desketch.baselines.compressor import Compressor, SenderState, check_length
from desketch.baselines.golomb import (
    Positions,
    check_padding,
    decode_positions,
    encode_positions,
    pack_bits,
    unpack_bits,
)
from desketch.errors import InputError, WireError
from desketch.keys import Key

__all__ = ["SparseTernary", "TopK", "largest"]

_SCALE = struct.Struct("<f")


def largest(x: Tensor, k: int) -> Tensor:
    """Positions of the k entries of largest magnitude, in increasing order."""
    return torch.topk(x.abs(), k, sorted=False).indices.sort().values


class TopK(Compressor):
    """Positions in Golomb code and values in half precision, relative to the largest of them."""

    def __init__(self, *, d: int, k: int) -> None:
        self.d, self.k = d, _sparsity(k, d)

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Send the k largest entries of ``x``."""
        index = largest(x, self.k)
        values = x[index]
        scale = max(float(values.abs().max()), float(np.finfo(np.float32).tiny))
        halves = (values / scale).to(torch.float16).numpy().astype("<f2").tobytes()
        return _SCALE.pack(scale) + halves + pack_bits(encode_positions(index.numpy(), self.d))

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """The k-sparse vector."""
        scale, body = _split_scale("top-k", payload)
        if len(body) < 2 * self.k:
            raise WireError(f"a top-k payload must hold {self.k} values, its bytes end before; the frame is damaged")
        halves = np.frombuffer(body, dtype="<f2", count=self.k).astype(np.float32)
        if not np.abs(halves).max() <= 1:
            raise WireError("top-k values must lie in [-1, 1] before scaling; the frame is damaged")
        positions, rest = decode_positions(unpack_bits(body[2 * self.k :]), self.k, self.d)
        check_padding(rest)
        return _scatter(positions, scale * halves, self.d)


class SparseTernary(Compressor):
    """Positions in Golomb code, one sign each, and the mean magnitude."""

    def __init__(self, *, d: int, k: int) -> None:
        self.d, self.k = d, _sparsity(k, d)

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Send the signs of the k largest entries of ``x``."""
        index = largest(x, self.k)
        values = x[index]
        positions = encode_positions(index.numpy(), self.d)
        signs = (values < 0).numpy().astype(np.uint8)
        return _SCALE.pack(float(values.abs().mean())) + pack_bits(np.concatenate([positions, signs]))

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """The sparse vector of signs, times mu."""
        mu, body = _split_scale("sparse ternary", payload)
        positions, rest = decode_positions(unpack_bits(body), self.k, self.d)
        if len(rest) < self.k:
            raise WireError(f"a ternary payload must hold {self.k} signs, its bits end before; the frame is damaged")
        check_padding(rest[self.k :])
        signs = 1 - 2 * rest[: self.k].astype(np.float32)
        return _scatter(positions, mu * signs, self.d)


def _sparsity(k: int, d: int) -> int:
    if not 1 <= k <= d:
        raise InputError(f"k must be between 1 and d={d}, got {k}")
    return k


def _split_scale(what: str, payload: bytes) -> tuple[float, bytes]:
    if len(payload) <= _SCALE.size:
        check_length(what, payload, _SCALE.size + 1)
    (scale,) = _SCALE.unpack_from(payload)
    if not 0 <= scale < float("inf"):
        raise WireError(f"the scale of a {what} payload must be finite and not negative, got {scale}")
    return scale, payload[_SCALE.size :]


def _scatter(positions: Positions, values: np.ndarray, d: int) -> Tensor:
    x = torch.zeros(d)
    x[torch.from_numpy(positions)] = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return x
