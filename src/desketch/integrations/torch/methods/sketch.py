"""The importance-weighted sketch: one bit for every d/b parameters, no memory.

    s_w = C(R_t D⁻¹ (theta_w - theta)),      y = C(mean_w s_w),      u = eta D R_tᵀ y

R_t is public and fresh in every round.  D_l = v_l^(-1/4) on tensor l, v_l the mean over ranks and entries of the inner
Adam's second moment, one f16 a tensor on the wire; D = 1 where the inner optimiser has none (``theory/weights.py`` says
why).  The gain is open-loop: with d/b the compression, omega the rounding variance of the code C and W ranks,

    eta = 1 / (1 + (1 - m)(d/b)(1 + omega)(1 + omega/W)),

the step at which an outer momentum m, which averages over 1/(1-m) rounds, keeps noise and signal in balance.

R_t is block-diagonal above 2^20 parameters: equal blocks, an R of their own each.  A block stays in the cache, and its
noise in the block; the compression, alpha and the gain are those of one R.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch

from desketch.fed.open_step import gain
from desketch.integrations.torch.exchange import Exchange, gather_bytes, mean_bytes
from desketch.integrations.torch.methods.base import Delta, Heard, Method, Pieces, Said
from desketch.integrations.torch.methods.weighing import Moments, Weighing
from desketch.keys import Key
from desketch.sketches import Sketch, Weighted, draw
from desketch.theory.link import CODECS
from desketch.wire import Wire

__all__ = ["SketchMethod", "blocks"]

Block = tuple[slice, slice]
_BLOCK = 1 << 20  # coordinates of a block at most


class SketchMethod(Method):
    """``moments`` is None for D = 1."""

    lr: ClassVar[float] = 1.0
    momentum: ClassVar[float] = 0.8

    def __init__(self, wire: Wire, *, sizes: Sequence[int], key: Key, momentum: float, moments: Moments | None) -> None:
        self.wire, self.key, self._momentum = wire, key, momentum
        self.weighing, self.d = Weighing(sizes, key=key, moments=moments), sum(sizes)
        self.b = wire.sketch_size(self.d)
        self.blocks = blocks(self.d, self.b)
        self._draw(self.blocks[0], key)  # what cannot be drawn is refused here

    def prepare(self, t: int, delta: Delta) -> Said:
        """One f16 a tensor: the root of its mean second moment."""
        return Said(notes=self.weighing.notes())

    def merge(self, t: int, delta: Delta, said: Said, heard: Heard, exchange: Exchange) -> Pieces:
        """Sketch, exchange b numbers, de-sketch; a block of d numbers at a time, both ways."""
        key, weights = self.key.fold_in("outer", t), self.weighing.weights(heard)
        s = np.empty(self.b, dtype=np.float32)
        for RD, (place, row) in self._drawn(key, weights):
            s[row] = RD.sketch(delta[place], overwrite=True).numpy()
        y = exchange.mean(s, key=key, up=self.wire.codec, down=self.wire.down, heard=heard.ranks, out=s)
        y *= np.float32(self.share(len(heard.ranks)))  # here and not on u, which is d/b times as long
        return ((place, RD.desketch(torch.from_numpy(y[row]))) for RD, (place, row) in self._drawn(key, weights))

    def _drawn(self, key: Key, weights: Sequence[float]) -> Iterator[tuple[Weighted, Block]]:
        """R D^-1 block by block; drawn twice a round: all of it takes as much memory as the sketch."""
        for j, block in enumerate(self.blocks):
            tensors, sizes = self.weighing.within(block[0])
            R = self._draw(block, key.fold_in("block", j) if j else key)
            yield Weighted(R, [weights[i] for i in tensors], sizes), block

    def _draw(self, block: Block, key: Key) -> Sketch:
        d, b = (cut.stop - cut.start for cut in block)
        return draw(self.wire.family, d=d, b=b, key=key, **self.wire.options)

    def share(self, ranks: int) -> float:
        """The gain eta of a round in which so many ranks were heard: R^T R is the identity in the mean."""
        up, down = (CODECS[codec].omega(self.b, self.wire.family) for codec in (self.wire.codec, self.wire.down))
        return gain(self.d / self.b, up=up, down=down, ranks=ranks, momentum=self._momentum)

    def round_bytes(self, ranks: int) -> float:
        """The exchange of b numbers, and the notes."""
        exchanged = mean_bytes(self.b, ranks, up=self.wire.codec, down=self.wire.down)
        return exchanged + gather_bytes(self.weighing.note_bytes, ranks)


def blocks(d: int, b: int) -> list[Block]:
    """The diagonal blocks of R: coordinates and numbers of each, as equal as can be."""
    count = min(-(-d // _BLOCK), b)
    edges = [(j * d // count, j * b // count) for j in range(count + 1)]
    return [(slice(a, c), slice(x, y)) for (a, x), (c, y) in pairwise(edges)]
