"""Weighing: the public weights D of a round, from one f16 a tensor that every rank says.

D_l = v_l^(-1/4) on tensor l, v_l the mean over ranks and entries of the inner Adam's second moment; D = 1 where the
inner optimiser has none (``theory/weights.py`` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
from torch import Tensor

from desketch.integrations.torch.methods.base import Heard
from desketch.keys import Key
from desketch.theory.weights import adam_weights
from desketch.wire import CODEC_TABLE, Header

__all__ = ["Moments", "Weighing"]

Moments = Callable[[], Sequence[float]]
"""The inner optimiser's mean second moment of every tensor, now."""


class Weighing:
    """Weights of tensors of these ``sizes``; ``moments`` is None for D = 1."""

    def __init__(self, sizes: Sequence[int], *, key: Key, moments: Moments | None) -> None:
        self.sizes, self._moments = list(sizes), moments
        n = len(self.sizes)
        self._header = Header(run=0, round=0, family="none", d=n, b=n, key=key, codec="f16")

    def notes(self) -> bytes:
        """One f16 a tensor: the root of its mean second moment."""
        if self._moments is None:
            return b""
        roots = np.sqrt(np.nan_to_num(np.array(self._moments(), dtype=np.float32), posinf=0.0))
        return CODEC_TABLE["f16"].encode(roots[None], self._header, ()).tobytes()

    @property
    def note_bytes(self) -> int:
        """Bytes of the notes of a rank."""
        return CODEC_TABLE["f16"].size(len(self.sizes)) if self._moments is not None else 0

    def weights(self, heard: Heard) -> list[float]:
        """D of a round, from everyone's notes alone: equal on every rank."""
        if self._moments is None:
            return [1.0] * len(self.sizes)
        notes = np.frombuffer(b"".join(heard.notes[rank] for rank in heard.ranks), np.uint8)
        roots = CODEC_TABLE["f16"].decode(notes.reshape(len(heard.ranks), -1), self._header)
        return adam_weights(np.square(roots, dtype=np.float64).mean(axis=0).tolist(), self.sizes)

    def within(self, cut: slice) -> tuple[list[int], list[int]]:
        """Which tensors the coordinates of ``cut`` belong to, and how many of each are in it."""
        ends = list(accumulate(self.sizes))
        inside = [min(end, cut.stop) - max(end - n, cut.start) for end, n in zip(ends, self.sizes, strict=True)]
        return [i for i, n in enumerate(inside) if n > 0], [n for n in inside if n > 0]

    def scale(self, x: Tensor, factors: Sequence[float]) -> None:
        """Multiply every tensor's part of x by its factor, in place."""
        start = 0
        for factor, n in zip(factors, self.sizes, strict=True):
            x[start : start + n] *= factor
            start += n
