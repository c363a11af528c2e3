"""Golomb-Rice codes for the positions of k non-zeros among d, split so that decoding is a handful of array operations.

The gaps between the sorted positions of a random k-subset are nearly geometric, for which the Golomb code is optimal
(Golomb, "Run-length encodings", 1966).  With density p = k/d the remainder has

    m = max(0, 1 + floor(log2( log((sqrt(5) - 1)/2) / log(1 - p) )))

bits (Sattler, Wiedemann, Müller, Samek, 2019), the quotient is unary.  The usual code interleaves the two; here all
the quotients come first and then all the remainders: the same number of bits, no bit-by-bit decoder.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError, WireError

__all__ = ["check_padding", "decode_positions", "encode_positions", "pack_bits", "remainder_bits", "unpack_bits"]

Bits = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def remainder_bits(k: int, d: int) -> int:
    """The optimal number of remainder bits m at density k/d."""
    if not 1 <= k <= d:
        raise InputError(f"a sparse code needs 1 <= k <= d, got k={k}, d={d}")
    if 2 * k >= d:
        return 0
    return max(0, 1 + math.floor(math.log2(math.log((math.sqrt(5) - 1) / 2) / math.log1p(-k / d))))


def encode_positions(positions: Positions, d: int) -> Bits:
    """Bits of k strictly increasing positions in ``0 .. d-1``; k and d are known to the reader."""
    m = remainder_bits(len(positions), d)
    gaps = np.diff(positions, prepend=-1) - 1
    if gaps.min() < 0 or positions[-1] >= d:
        raise InputError(f"positions must be strictly increasing in 0 .. {d - 1}, got {positions[:5]} ...")
    quotients = gaps >> m
    unary = np.ones(int(quotients.sum()) + len(positions), dtype=np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 0
    remainders = (gaps[:, None] >> np.arange(m)) & 1
    return np.concatenate([unary, remainders.astype(np.uint8).reshape(-1)])


def decode_positions(bits: Bits, k: int, d: int) -> tuple[Positions, Bits]:
    """The k positions at the head of ``bits``, and the bits that follow them."""
    m = remainder_bits(k, d)
    stops = np.flatnonzero(bits == 0)[:k]
    if len(stops) < k or stops[-1] + 1 + m * k > len(bits):
        raise WireError(f"a sparse payload must hold {k} positions, its bits end before; the frame is damaged")
    quotients = np.diff(stops, prepend=-1) - 1
    start = int(stops[-1]) + 1
    remainders = bits[start : start + m * k].reshape(k, m).astype(np.int64) @ (1 << np.arange(m, dtype=np.int64))
    positions = np.cumsum((quotients << m) + remainders + 1) - 1
    if positions[-1] >= d:
        raise WireError(f"a position must be below d={d}, got {positions[-1]}; the frame is damaged or foreign")
    return positions, bits[start + m * k :]


def pack_bits(bits: Bits) -> bytes:
    """Bits to bytes, first bit lowest, zeros to the end of the last byte."""
    return np.packbits(bits, bitorder="little").tobytes()


def unpack_bits(payload: bytes) -> Bits:
    """Bytes to bits, first bit lowest."""
    return np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little")


def check_padding(rest: Bits) -> None:
    """Refuse bits after the last entry, but for zeros to the end of one byte."""
    if len(rest) >= 8 or rest.any():
        raise WireError(f"{len(rest)} bits follow the last entry, expected zeros to the end of one byte")
