"""Frames that pass every check of the envelope and carry the worst numbers a codec can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from desketch import wire
from desketch.fed import SketchChannel

WEIGHTS = [3e38, 1e-45, 1e-38, 1.0, 1e6]
FLOATS = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, -1e5, 1e11, -1e13, 1e20, 1e38, -3.4e38, np.inf, np.nan])


def payload(codec: str, b: int, rng: np.random.Generator) -> bytes:
    """Random bytes of the right length, with extreme scales or numbers where the codec keeps them."""
    size, blocks = wire.CODEC_TABLE[codec].size(b), -(-b // 256)
    raw = rng.integers(0, 256, size, dtype=np.uint8)
    value = rng.choice(FLOATS).astype("<f4")
    if codec == "f32":
        pool = FLOATS[: rng.integers(1, len(FLOATS) + 1)]
        raw = rng.choice(pool, b).astype("<f4").view(np.uint8)
    elif codec == "sign1":
        raw[:4] = np.frombuffer(value.tobytes(), np.uint8)
        raw[-1] &= (1 << (b % 8 or 8)) - 1
    elif codec.startswith("int"):
        raw[: 2 * blocks] = np.tile(np.frombuffer(value.tobytes(), np.uint8)[2:], blocks)
    elif codec == "f16":
        raw[0] = rng.choice([0, 1, 128, 254, 255])
    return raw.tobytes()


def hostile_frame(channel: SketchChannel, t: int, rng: np.random.Generator) -> bytes:
    """A frame of round t with a random hostile payload and weight."""
    header = replace(channel.header(t, "update"), weight=float(rng.choice(WEIGHTS)))
    return wire.shorten(header, payload(channel.wire.codec, channel.b, rng))


class TamperedChannel(SketchChannel):
    """A channel on whose way up some clients send hostile frames in place of theirs."""

    def __init__(self, *, liars: Sequence[int], seed: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.liars, self.seed = frozenset(liars), seed

    def encode_updates(
        self, t: int, deltas: Tensor, *, clients: Sequence[int], weights: Sequence[float]
    ) -> list[bytes]:
        honest = super().encode_updates(t, deltas, clients=clients, weights=weights)
        return [
            hostile_frame(self, t, np.random.default_rng([self.seed, c, t])) if c in self.liars else frame
            for c, frame in zip(clients, honest, strict=True)
        ]


def honest_frames(channel: SketchChannel, t: int, deltas: Tensor) -> Mapping[int, bytes]:
    """The frames of clients 0..n-1 with those updates."""
    clients = range(len(deltas))
    sent = channel.encode_updates(t, deltas, clients=clients, weights=[1.0 + c for c in clients])
    return dict(zip(clients, sent, strict=True))
