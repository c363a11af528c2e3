"""What a message costs: bytes of a codec, the variance its rounding adds, and the seconds of a round on a link."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from desketch.theory.problem import demand

__all__ = ["CODECS", "Codec", "Link", "alpha_on_the_wire"]

FRAME_BYTES = 25  # header and checksum around a payload
_BLOCK = 256  # numbers that share a scale
_PEAK = math.sqrt(2 * math.log(2 * _BLOCK))  # a block's largest |value| over its root mean square, about


@dataclass(frozen=True)
class Codec:
    """Bytes of b numbers, and omega with E|decode(encode(s)) - s|² = omega |s|² for unbiased rounding."""

    name: str
    payload: Callable[[int], int]
    omega: float

    def frame(self, b: int) -> int:
        """Bytes of a whole message."""
        return self.payload(b) + FRAME_BYTES


def _scales(b: int) -> int:
    return 2 * -(-b // _BLOCK)


# stochastic rounding at spacing Δ errs by Δ²/6 on average; the unbiased sign code by π/2 - 1 (EDEN, ICML 2022)
CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec("f32", lambda b: 4 * b, 0.0),
        Codec("f16", lambda b: 2 * b, 0.0),
        Codec("int8", lambda b: b + _scales(b), (_PEAK / 127) ** 2 / 6),
        Codec("int4", lambda b: -(-b // 2) + _scales(b), (_PEAK / 7) ** 2 / 6),
        Codec("sign1", lambda b: -(-b // 8) + 4, math.pi / 2 - 1),
    )
}


def alpha_on_the_wire(alpha: float, codec: Codec, participants: int) -> float:
    """The alpha of a sketch rounded on the way up and down: (1+alpha)(1+omega/n)(1+omega) - 1.

    Uplink errors of n participants are independent and average out; the broadcast is rounded once more. De-sketching
    multiplies the energy of an isotropic error by d/b <= 1 + alpha.
    """
    return (1 + alpha) * (1 + codec.omega / participants) * (1 + codec.omega) - 1


@dataclass(frozen=True, kw_only=True)
class Link:
    """One client's link (bits per second, seconds one way) and its seconds per local step."""

    uplink: float = math.inf
    downlink: float = math.inf
    latency: float = 0.0
    step_seconds: float = 0.0

    def __post_init__(self) -> None:
        demand(self.uplink > 0 and self.downlink > 0, "link speeds must be positive bits per second")
        demand(min(self.latency, self.step_seconds) >= 0, "latency and seconds per step cannot be negative")

    def parts(self, *, up_bytes: float, down_bytes: float, K: int) -> dict[str, float]:
        """Seconds of a round, by what spends them."""
        return {
            "uplink": 8 * up_bytes / self.uplink,
            "downlink": 8 * down_bytes / self.downlink,
            "latency": 2 * self.latency,
            "local steps": K * self.step_seconds,
        }
