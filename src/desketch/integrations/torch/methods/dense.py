"""DiLoCo: the mean of the whole updates, in f32 or rounded to integers.

Douillard et al., "DiLoCo: Distributed low-communication training of language models", 2023: theta += Nesterov(mean_w
(theta_w - theta)) every H steps.  The codec rounds at random, without bias, once on the way to the averaging rank and
once on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from desketch.errors import ConfigError
from desketch.integrations.torch.exchange import Exchange, mean_bytes
from desketch.integrations.torch.methods.base import Delta, Heard, Method, Pieces, Said, whole
from desketch.keys import Key

__all__ = ["Dense", "DenseMethod"]

_CODECS = ("f32", "f16", "int8", "int4")


@dataclass(frozen=True, kw_only=True)
class Dense:
    """All d numbers of every update, by ``codec``."""

    codec: str = "f32"

    def __post_init__(self) -> None:
        if self.codec not in _CODECS:
            raise ConfigError(f"codec of a dense update: got {self.codec!r}, expected one of {', '.join(_CODECS)}")


class DenseMethod(Method):
    """`Dense` updates of d numbers."""

    def __init__(self, wire: Dense, *, d: int, key: Key) -> None:
        self.wire, self.d, self.key = wire, d, key

    def prepare(self, t: int, delta: Delta) -> Said:
        """Nothing beforehand."""
        return Said()

    def merge(self, t: int, delta: Delta, said: Said, heard: Heard, exchange: Exchange) -> Pieces:
        """The mean of the rounded updates, rounded."""
        codec, key = self.wire.codec, self.key.fold_in("outer", t)
        x = delta[:].numpy()
        return whole(torch.from_numpy(exchange.mean(x, key=key, up=codec, down=codec, heard=heard.ranks, out=x)))

    def round_bytes(self, ranks: int) -> float:
        """The exchange of d numbers."""
        return mean_bytes(self.d, ranks, up=self.wire.codec, down=self.wire.codec)
