"""What the codec of the wire adds to an observation: the numbers as decoded, and their error as noise.

The error of a codec is measured, not modelled: Gaussian numbers of the same size go through the same encoder and
decoder.  Rounding errors are not Gaussian, but with b of them entering every unknown their sum nearly is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from desketch.keys import Key
from desketch.wire import Header, decode, encode

__all__ = ["codec_noise", "through_the_wire"]

_SAMPLES = 4096


def through_the_wire(s: Tensor, *, family: str, d: int, codec: str, key: Key, client: int = 0) -> Tensor:
    """The numbers s as a receiver decodes them, in float64."""
    header = Header(run=0, round=0, family=family, d=d, b=s.numel(), key=key, codec=codec)
    frame = encode(s.float(), header, rounding=key.fold_in("rounding", client))
    return torch.from_numpy(decode(frame, header)[1]).double()


def codec_noise(s: Tensor, *, family: str, d: int, codec: str) -> float:
    """Std of the codec's error per number, for numbers distributed like s."""
    rms = float(s.square().mean().sqrt())
    rng, errors, key = np.random.default_rng(0), [], Key(0)
    for i in range(max(1, _SAMPLES // s.numel())):
        sample = torch.from_numpy(rms * rng.standard_normal(s.numel()))
        seen = through_the_wire(sample, family=family, d=d, codec=codec, key=key.fold_in("codec", i))
        errors.append(seen - sample)
    return float(torch.cat(errors).square().mean().sqrt())
