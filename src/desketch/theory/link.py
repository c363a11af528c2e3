"""What a message costs: bytes of a codec, the variance its rounding adds, and the seconds of a round on a link.

``Codec.omega`` bounds E|C(s) - s|² <= omega |s|²; the derivations are in docs/theory.md ("Rounding").

* *integers*: stochastic rounding at spacing Δ errs by at most Δ²/4 a number, and Δ <= (1 + 2^-7) max|s|/levels over a
  block of B <= 256 numbers (the scale is rounded up to bfloat16). For any vector max s² <= |s|²; for the sketch of a
  family whose numbers are Rademacher sums (``SPREADING``) E max s² <= (2/b)(1 + log 2B)|g|², which is far less.
* *signs*: behind a uniformly random rotation the error is orthogonal to s and isotropic, and its energy is
  b(b-2) ∫ λ φ(λ)^b dλ - 1 with φ(λ) = exp(λ²/2) erfc(λ/√2): below π/2 - 1 for every b (``sign_energy``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from desketch.theory.noise import Noise, sampled
from desketch.theory.problem import demand

__all__ = ["CODECS", "SPREADING", "CodecCost", "Link", "rounding", "sign_bias", "sign_energy"]

FRAME_BYTES = 25  # header and checksum around a payload
SPREADING = ("srht", "ams")  # every number is a Rademacher sum of the whole vector over √b, every row has energy d/b
_BLOCK = 256  # numbers that share a scale
_CEILING = (1 + 2**-7) ** 2  # of a scale rounded up to bfloat16, squared


@dataclass(frozen=True)
class CodecCost:
    """Bytes of b numbers, and omega with E|decode(encode(s)) - s|² <= omega |s|² for unbiased rounding.

    ``worst(b)`` holds for every s in R^b, ``spread(b)`` on average over a sketch of a spreading family.
    """

    name: str
    payload: Callable[[int], int]
    worst: Callable[[int], float]
    spread: Callable[[int], float]
    words: str

    def frame(self, b: int) -> int:
        """Bytes of a whole message."""
        return self.payload(b) + FRAME_BYTES

    def omega(self, b: int, family: str) -> float:
        """The better bound that holds for sketches of ``family``."""
        return min(self.worst(b), self.spread(b)) if family in SPREADING else self.worst(b)


def _scales(b: int) -> int:
    return 2 * -(-b // _BLOCK)


def _integers(levels: int) -> tuple[Callable[[int], float], Callable[[int], float]]:
    variance = _CEILING / (4 * levels**2)
    return (
        lambda b: variance * min(b, _BLOCK),
        lambda b: variance * 2 * (1 + math.log(2 * min(b, _BLOCK))),
    )


def _constant(omega: float) -> tuple[Callable[[int], float], Callable[[int], float]]:
    return (lambda b: omega), (lambda b: omega)


CODECS: dict[str, CodecCost] = {
    codec.name: codec
    for codec in (
        CodecCost("f32", lambda b: 4 * b, *_constant(0.0), "32-bit floats"),
        CodecCost("f16", lambda b: 2 * b + 1, *_constant(2.0**-22), "16-bit floats"),  # half an ulp, rounded to nearest
        CodecCost("int8", lambda b: b + _scales(b), *_integers(127), "8 bits each"),
        CodecCost("int4", lambda b: -(-b // 2) + _scales(b), *_integers(7), "4 bits each"),
        CodecCost("sign1", lambda b: -(-b // 8) + 4, *_constant(math.pi / 2 - 1), "one bit each"),
        CodecCost("trellis1", lambda b: -(-b // 8) + 2, *_constant(0.41), "one bit each"),
        CodecCost("trellis2", lambda b: -(-b // 16) + 2, *_constant(1.18), "half a bit each"),
        CodecCost("trellis3", lambda b: -(-b // 24) + 2, *_constant(2.0), "a third of a bit each"),
    )
}


def rounding(codec: CodecCost, *, family: str, b: int, clients: int, population: int | None = None) -> Noise:
    """The noise of rounding every message of a round, up and down, and of hearing ``clients`` of ``population``.

    On the way down a spreading family's better bound holds for the sketch of the mean update only, not for the errors
    that the clients' messages brought: max(x + e)² <= (1+τ) max x² + (1+1/τ)|e|², with τ = sqrt(worst/n).
    """
    worst, omega = codec.worst(b), codec.omega(b, family)
    down, echo = omega, worst
    if omega < worst:
        tau = math.sqrt(worst / clients)
        down, echo = (1 + tau) * omega, (1 + 1 / tau) * worst
        down, echo = (down, echo) if down < worst else (worst, worst)
    absence = sampled(clients, population or clients)
    return Noise(clients=clients, uplink=omega, downlink=down, echo=echo, absence=absence)


def sign_energy(b: int, *, nodes: int = 4000) -> float:
    """E|C(s) - s|²/|s|² of the sign code behind a uniformly random rotation of R^b: Simpson's rule in λ = sinh θ."""
    demand(b >= 1, f"a code is of at least one number, got b={b}")
    if b <= 2:
        return 0.0 if b == 1 else 4 / math.pi - 1  # by hand: the circle
    end = 60.0 / b
    while end**2 * _half_normal(end) ** b * b**2 > 1e-12:  # the integrand falls like λ^(1-b) in the end
        end *= 2
    h = math.asinh(end) / nodes
    total = 0.0
    for i in range(nodes + 1):
        theta = i * h
        weight = 1 if i in (0, nodes) else 4 if i % 2 else 2
        value = math.sinh(theta)
        total += weight * value * math.cosh(theta) * _half_normal(value) ** b
    return b * (b - 2) * total * h / 3 - 1


def _half_normal(x: float) -> float:
    """E exp(-x|Z|) = exp(x²/2) erfc(x/√2) for a standard normal Z; a continued fraction where the factors overflow."""
    if x < 20:
        return math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    fraction = x
    for k in range(20, 0, -1):
        fraction = x + k / fraction
    return math.sqrt(2 / math.pi) / fraction


# The rotation on the wire is not quite uniform.  From these b on, |E C(s) - s| was at most this part of |s| for all s
# that benchmarks/one_bit_codes.py tries, rounded up; tests/wire/test_unbiased.py holds the table to its result.
_SIGN_BIAS = ((1, 0.001), (2, 1.5), (4, 0.7), (5, 0.32), (9, 0.25), (16, 0.08), (17, 0.02), (32, 0.01))


def sign_bias(b: int) -> float:
    """How far ``sign1`` can be from unbiased at b numbers or more, relative to |s|; one number is all scale."""
    demand(b >= 1, f"a code is of at least one number, got b={b}")
    return next(bias for start, bias in reversed(_SIGN_BIAS) if b >= start)


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
