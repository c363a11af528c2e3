"""The importance-weighted sketch: one bit for every d/b parameters, no memory.

    s_w = C(R_t D⁻¹ (theta_w - theta)),      y = C(mean_w s_w),      u = eta D R_tᵀ y

R_t is public and fresh in every round.  D_l = v_l^(-1/4) on tensor l, v_l the mean over ranks and entries of the inner
Adam's second moment, one f16 a tensor on the wire; D = 1 where the inner optimiser has none (``theory/weights.py`` says
why).  The gain is open-loop: with d/b the compression, omega the rounding variance of the code C and W ranks,

    eta = 1 / (1 + (1 - m)(d/b)(1 + omega)(1 + omega/W)),

the step at which an outer momentum m, which averages over 1/(1-m) rounds, keeps noise and signal in balance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from desketch.integrations.torch.exchange import Exchange, gather_bytes, mean_bytes
from desketch.integrations.torch.methods.base import Heard, Method, Said
from desketch.keys import Key
from desketch.sketches import Weighted, draw
from desketch.theory.link import CODECS
from desketch.theory.weights import adam_weights
from desketch.wire import CODEC_TABLE, Header, Wire

__all__ = ["SketchMethod", "gain"]

Moments = Callable[[], Sequence[float]]
"""The inner optimiser's mean second moment of every tensor, now."""


class SketchMethod(Method):
    """``moments`` is None for D = 1."""

    def __init__(self, wire: Wire, *, sizes: Sequence[int], key: Key, momentum: float, moments: Moments | None) -> None:
        self.wire, self.sizes, self.key, self._momentum, self._moments = wire, list(sizes), key, momentum, moments
        self.d = sum(self.sizes)
        self.b = wire.sketch_size(self.d)
        draw(wire.family, d=self.d, b=self.b, key=key, **wire.options)  # what cannot be drawn is refused here

    def prepare(self, t: int, delta: Tensor) -> Said:
        """One f16 a tensor: the root of its mean second moment."""
        if self._moments is None:
            return Said()
        roots = np.sqrt(np.nan_to_num(np.array(self._moments(), dtype=np.float32), posinf=0.0))
        return Said(notes=CODEC_TABLE["f16"].encode(roots[None], self._note_header(), ()).tobytes())

    def merge(self, t: int, delta: Tensor, said: Said, heard: Heard, exchange: Exchange) -> Tensor:
        """Sketch, exchange b numbers, de-sketch into ``delta``."""
        key = self.key.fold_in("outer", t)
        R = draw(self.wire.family, d=self.d, b=self.b, key=key, **self.wire.options)
        D = Weighted(R, self.weights(heard), self.sizes)
        s = D.sketch(delta, overwrite=True).numpy()
        y = exchange.mean(s, key=key, up=self.wire.codec, down=self.wire.down, heard=heard.ranks)
        u = D.desketch(torch.from_numpy(y), out=delta)
        return u.mul_(self.gain(len(heard.ranks)))

    def weights(self, heard: Heard) -> list[float]:
        """D of a round, from everyone's notes alone: equal on every rank."""
        if self._moments is None:
            return [1.0] * len(self.sizes)
        notes = np.frombuffer(b"".join(heard.notes[rank] for rank in heard.ranks), np.uint8)
        roots = CODEC_TABLE["f16"].decode(notes.reshape(len(heard.ranks), -1), self._note_header())
        return adam_weights(np.square(roots, dtype=np.float64).mean(axis=0).tolist(), self.sizes)

    def gain(self, ranks: int) -> float:
        """Eta of a round in which so many ranks were heard."""
        omega = CODECS[self.wire.codec].omega(self.b, self.wire.family)
        return gain(self.d / self.b, omega=omega, ranks=ranks, momentum=self._momentum)

    def round_bytes(self, ranks: int) -> float:
        """The exchange of b numbers, and the notes."""
        notes = CODEC_TABLE["f16"].size(len(self.sizes)) if self._moments is not None else 0
        return mean_bytes(self.b, ranks, up=self.wire.codec, down=self.wire.down) + gather_bytes(notes, ranks)

    def _note_header(self) -> Header:
        n = len(self.sizes)
        return Header(run=0, round=0, family="none", d=n, b=n, key=self.key, codec="f16")


def gain(compression: float, *, omega: float, ranks: int, momentum: float) -> float:
    """Eta = 1/(1 + (1-m)(d/b)(1+omega)(1+omega/W))."""
    return 1 / (1 + (1 - momentum) * compression * (1 + omega) * (1 + omega / ranks))
