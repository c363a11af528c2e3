"""Every parameter, through one of the wire's codecs: FedAvg in f32, f16, int8 or int4, and EDEN in one bit.

int8 and int4 round at random with a scale per block, so they are unbiased (Alistarh, Grubic, Li, Tomioka, Vojnovic,
"QSGD", NeurIPS 2017).  ``sign1`` rotates by the message's own public key and keeps signs with the unbiased scale
S = |x|² / |Ux|_1 (Vargaftik et al., "EDEN", ICML 2022, at one bit); a fresh rotation per client and round makes the
errors of different clients average out.  None of them needs error feedback.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from desketch import wire
from desketch.baselines.compressor import Compressor, SenderState, check_length
from desketch.errors import InputError
from desketch.keys import Key

__all__ = ["Dense"]


class Dense(Compressor):
    """All d numbers in a wire codec."""

    def __init__(self, *, d: int, codec: str) -> None:
        if codec not in wire.CODEC_TABLE:
            raise InputError(f"unknown codec {codec!r}; choose one of {', '.join(wire.CODEC_TABLE)}")
        self.d, self._codec = d, wire.CODEC_TABLE[codec]

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Encode the d numbers; rounding and rotation come from the message's key."""
        return self._codec.encode(x.numpy()[None], self._header(key), [key]).tobytes()

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """The d numbers as the codec keeps them."""
        check_length(self._codec.name, payload, self._codec.size(self.d))
        return torch.from_numpy(self._codec.decode(np.frombuffer(payload, dtype=np.uint8)[None], self._header(key))[0])

    def _header(self, key: Key) -> wire.Header:
        return wire.Header(run=0, round=0, family="none", d=self.d, b=self.d, key=key, codec=self._codec.name)
