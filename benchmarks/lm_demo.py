"""DeMo as a row of the language-model benchmark: momentum of which only the fastest parts travel, every step.

Peng et al., "DeMo: Decoupled momentum optimization", 2024 (arXiv 2411.19870), on the in-process engine:

    m_w = beta m_w + g_w,     q_w = top-k of every chunk of DCT(m_w),     m_w -= DCT'(q_w)
    theta = (1 - lr decay) theta - lr sign(DCT'(mean_w q_w))

A tensor is cut along each dimension into chunks of at most 64 (the largest divisor).  Payloads are all-gathered; an
entry is charged 16 bits and its place in the chunk, whatever the authors' own code sends.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lm_batched import Workers
from lm_bed import cosine

_LARGEST = 64  # the paper's chunk
_AMPLITUDE = 16  # bits
_DECAY = 0.1  # as AdamW's in the other rows


class DemoWorkers(Workers):
    """Workers whose models never differ; only their momenta do."""

    def __init__(
        self, job: dict[str, Any], symbols: int, *, lr: float, settings: dict[str, Any], compiled: bool
    ) -> None:
        super().__init__(job, symbols, lr=lr, average=False, compiled=compiled)
        self.share, self.beta = settings.pop("share", 0.008), settings.pop("beta", 0.999)
        if settings:
            raise SystemExit(f"{job['row']}: demo does not know {', '.join(settings)}")
        self.momenta = {name: torch.zeros_like(p) for name, p in self.stacks.items()}
        self.chunks = {name: Chunks(tuple(p.shape[1:]), self.share) for name, p in self.stacks.items()}
        self.lr, self.part, self.steps, self.bytes = lr, cosine(job), 0, 0.0

    @torch.no_grad()
    def inner(self, rows: Tensor) -> None:
        """One step of all workers together."""
        gradients, lr = self.clipped(rows), self.lr * self.part(self.steps)
        for name, p in self.stacks.items():
            m, chunks = self.momenta[name].mul_(self.beta).add_(gradients[name]), self.chunks[name]
            q = chunks.fastest(m)
            m.sub_(q)
            p.mul_(1 - lr * _DECAY).sub_(q.mean(0, keepdim=True).sign(), alpha=lr)
            self.bytes += 2 * (self.world - 1) * chunks.bits / 8  # sent and received in an all-gather
        self.steps += 1


class Chunks:
    """The chunks of a tensor, their DCT, and how many entries of each travel."""

    def __init__(self, shape: tuple[int, ...], share: float) -> None:
        self.shape = shape
        self.sides = [max(n for n in range(1, _LARGEST + 1) if size % n == 0) for size in shape]
        self.transforms = [dct(side) for side in self.sides]
        size = math.prod(self.sides)
        self.k = max(1, round(share * size))
        self.bits = math.prod(shape) // size * self.k * (_AMPLITUDE + math.ceil(math.log2(size)))

    def fastest(self, m: Tensor) -> Tensor:
        """The k largest DCT entries of every chunk of ``m (W, *shape)``, back in the tensor's own place."""
        cut = [len(m), *(n for size, side in zip(self.shape, self.sides, strict=True) for n in (size // side, side))]
        pieces = self._along(m.view(cut), inverse=False)
        places, inside = [0, *range(1, len(cut), 2)], [*range(2, len(cut), 2)]
        rows = pieces.permute(*places, *inside)
        flat = rows.reshape(*rows.shape[: len(places)], -1)
        index = flat.abs().topk(self.k, dim=-1, sorted=False).indices
        kept = torch.zeros_like(flat).scatter_(-1, index, flat.gather(-1, index)).view(rows.shape)
        back = kept.permute(*torch.tensor([*places, *inside]).argsort().tolist())
        return self._along(back, inverse=True).reshape(m.shape)

    def _along(self, x: Tensor, *, inverse: bool) -> Tensor:
        for i, C in enumerate(self.transforms):
            x = torch.movedim(torch.movedim(x, 2 + 2 * i, -1) @ (C if inverse else C.T), -1, 2 + 2 * i)
        return x


def dct(n: int) -> Tensor:
    """The orthonormal DCT-II as a matrix."""
    j, i = torch.meshgrid(torch.arange(n, dtype=torch.float64), torch.arange(n, dtype=torch.float64), indexing="ij")
    C = torch.cos(math.pi / n * (i + 0.5) * j) * math.sqrt(2 / n)
    C[0] /= math.sqrt(2)
    return C.float()
