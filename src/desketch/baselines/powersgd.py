"""Every weight matrix as a rank-r product, by one warm-started step of power iteration.

Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS
2019.  For each parameter reshaped to a matrix M (n x m), with Q (m x r) kept from the sender's previous round,

    P = orthonormal(M Q),   Q = Mᵀ P,   decoded M = P Qᵀ;

vectors are sent as they are.  Biased: wrap it in `ErrorFeedback`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from desketch.baselines.compressor import Compressor, SenderState, check_length, finite
from desketch.errors import InputError
from desketch.keys import Key

__all__ = ["PowerSGD"]


class PowerSGD(Compressor):
    """Rank-r factors in f32 of every parameter that they make smaller; the other parameters in f32."""

    def __init__(self, *, shapes: Sequence[Sequence[int]], rank: int) -> None:
        if rank < 1:
            raise InputError(f"the rank must be at least 1, got {rank}")
        self.rank = rank
        self._sizes = [math.prod(shape) for shape in shapes]
        self._matrices = [_matrix(shape, rank) for shape in shapes]
        self.d = sum(self._sizes)
        sent = [rank * sum(nm) if nm else size for size, nm in zip(self._sizes, self._matrices, strict=True)]
        self._bytes = 4 * sum(sent)

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """One power iteration per matrix, from the Q that ``state`` remembers."""
        parts: list[Tensor] = []
        for i, (block, nm) in enumerate(zip(torch.split(x, self._sizes), self._matrices, strict=True)):
            if nm is None:
                parts.append(block)
                continue
            M, name = block.view(nm), f"Q{i}"
            Q = state[name] if name in state else _gaussian(nm[1], self.rank, key.fold_in("warm start", i))
            P = torch.linalg.qr(M @ Q).Q
            state[name] = M.T @ P
            parts += [P, state[name]]
        return torch.cat([part.reshape(-1) for part in parts]).numpy().astype("<f4").tobytes()

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """P Qᵀ for every matrix, the vectors as sent."""
        check_length(f"rank-{self.rank}", payload, self._bytes)
        numbers = torch.from_numpy(np.frombuffer(payload, dtype="<f4").astype(np.float32))
        finite("a low-rank payload", numbers)
        x, start = torch.empty(self.d), 0
        for block, nm in zip(torch.split(x, self._sizes), self._matrices, strict=True):
            if nm is None:
                block.copy_(numbers[start : start + len(block)])
                start += len(block)
                continue
            P, Q = (numbers[s : s + n * self.rank].view(n, self.rank) for s, n in _spans(start, nm, self.rank))
            block.view(nm).copy_(P @ Q.T)
            start += self.rank * sum(nm)
        return x


def _matrix(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """The n x m of a parameter as a matrix, or None where two factors are no smaller than the parameter itself."""
    if len(shape) < 2:
        return None
    n, m = shape[0], math.prod(shape[1:])
    return (n, m) if rank * (n + m) < n * m else None


def _spans(start: int, nm: tuple[int, int], rank: int) -> list[tuple[int, int]]:
    return [(start, nm[0]), (start + nm[0] * rank, nm[1])]


def _gaussian(n: int, r: int, key: Key) -> Tensor:
    """An n x r matrix of standard normals by Box-Muller on the key's words."""
    u = (key.words(2 * n * r).astype(np.float64) + 0.5) / 2**32
    z = np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * np.pi * u[1::2])
    return torch.from_numpy(z.reshape(n, r).astype(np.float32))
