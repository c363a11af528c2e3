"""Gpt: a small causal transformer that predicts the next symbol at every place of a window.

    h = E[x] + P,      h += A(N(h)),      h += M(N(h))  per block,      logits = N(h) Eᵀ

Pre-norm blocks of causal attention A and a GELU perceptron M four times as wide, learned positions P, and a head tied
to the embedding E (Radford et al. 2019; Press, Wolf 2017).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["Gpt"]

_HEAD = 32  # features of a head, where the width allows
_STD = 0.02


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        """(B, T, width) to the same."""
        h = h + self.attention(self.norm_attention(h))
        return h + self.mlp(self.norm_mlp(h))

    def attention(self, h: Tensor) -> Tensor:
        """Every place looks at itself and what came before."""
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        # torch.func has no rule for the fused kernel on CPUs; the plain one is as fast at these sizes
        with sdpa_kernel(SDPBackend.MATH):
            mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(mixed.transpose(-2, -3).flatten(-2))


class Gpt(nn.Module):
    """Logits ``(B, T, symbols)`` of the symbols that follow ``x (B, T)``, T <= context."""

    def __init__(self, *, symbols: int, context: int, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.Sequential(*[_Block(width, heads_of(width)) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        self._initialise(layers)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every symbol at every place."""
        h = self.embedding(x) + self.positions[: x.shape[-1]]
        return self.head(self.norm(self.blocks(h)))

    def _initialise(self, layers: int) -> None:
        """Normal weights, smaller where they end in the residual stream, whose variance then does not grow."""
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            ends = name.endswith(("project.weight", "mlp.2.weight"))
            nn.init.normal_(p, std=_STD / math.sqrt(2 * layers) if ends else _STD)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)


def heads_of(width: int) -> int:
    """Heads of at least 32 features where the width can be so divided, else one."""
    return max(heads for heads in range(1, max(1, width // _HEAD) + 1) if width % heads == 0)
