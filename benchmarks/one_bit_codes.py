"""Four one-bit codes on concentrated and spread vectors: bias, variance and CPU time of a message.

    python benchmarks/one_bit_codes.py --json benchmarks/results/one_bit_codes.json

Every code sends b bits and one scale.  ``plain``: the signs of v times |v|²/|v|₁.  ``two passes``: the same behind
signs and Hadamard transforms of up to 256 numbers, twice.  ``shipped``: the code of `desketch.wire`, four passes and a
salt of its own for every message.  ``dithered``: the shipped rotation, then the bit of r > τ for r of unit mean square
and a public random τ of density p(τ) ∝ √(Φ(τ)(1-Φ(τ))), decoded as ±1/(2p) - (1-2Φ)/(2p).  Since
∫ (sign(r-τ) - (1-2Φ(τ)))/2 dτ = r for every r, that one is exactly unbiased; its variance is (∫√(Φ(1-Φ)))² - 1 = 1.58.

|E C(v) - v|² is estimated without the sampling error by the product of the mean errors of two halves of the messages;
``error`` is the standard error of that estimate, as a bias: what a code without bias would show.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm as gauss

from desketch.keys import Key
from desketch.wire import Header, decode_batch, encode_batch
from desketch.wire.codecs import SALTS
from desketch.wire.rotation import rotate, rotate_back

Array = np.ndarray[Any, np.dtype[Any]]
Code = Callable[[Array, int, int], Array]  # v (b,), messages, seed -> decoded (messages, b)
SIZES = (4, 8, 12, 16, 32, 64, 100, 256, 1696)
FINE = tuple(sorted({*range(1, 18), 20, 31, 63, 127, *SIZES}))  # of the shipped code
CHUNK = 250  # messages under one round's key


def vectors(b: int) -> dict[str, Array]:
    """Vectors of R^b on which sign codes go wrong, and some on which they do not."""
    i, rng = np.arange(b), np.random.default_rng(b)
    out = {
        "one-hot": i == 0,
        "(1, .01, .01, ...)": np.where(i == 0, 1, 0.01),
        "(1, .1, 0, ...)": (i == 0) + 0.1 * (i == 1),
        "(1, .5)": (i == 0) + 0.5 * (i == 1),
        "(1, .5) apart": (i == 0) + 0.5 * (i == b - 1),
        "three": i < 3,
        "2^-i": 0.5 ** np.minimum(i, 60),
        "1/i": 1 / (i + 1),
        "block": i < max(1, b // 4),
        "gaussian": rng.standard_normal(b),
        "student": rng.standard_t(1.5, b),
    }
    return {name: np.asarray(v, dtype=np.float32) for name, v in out.items()}


def plain(v: Array, n: int, seed: int) -> Array:
    """Signs without a rotation."""
    return np.repeat((np.where(v < 0, -1.0, 1.0) * (v @ v) / np.abs(v).sum())[None], n, axis=0)


def two_passes(v: Array, n: int, seed: int) -> Array:
    """Signs behind B D₂ A D₁: A mixes by stride, B consecutively, groups of a power of four up to 256."""
    b, rng = len(v), np.random.default_rng([2, seed])
    h = 4 ** ((min(b, 256).bit_length() - 1) // 2)
    m, H = b // h, _hadamard(h)
    first, last = (rng.choice(np.float32([-1, 1]), size=(n, b)) for _ in range(2))

    def strided(x: Array) -> Array:
        return np.concatenate([(H @ x[:, : m * h].reshape(n, h, m)).reshape(n, -1), x[:, m * h :]], axis=1)

    def consecutive(x: Array) -> Array:
        return np.concatenate([x[:, : b - m * h], (x[:, b - m * h :].reshape(n, m, h) @ H).reshape(n, -1)], axis=1)

    r = consecutive(strided(v * first) * last)
    scale = np.square(r).sum(1, keepdims=True) / np.abs(r).sum(1, keepdims=True)
    return strided(consecutive(np.where(r < 0, -scale, scale)) * last) * first


def shipped(v: Array, n: int, seed: int) -> Array:
    """``sign1`` as `desketch.wire` sends it, frames and all."""
    b = len(v)
    header = Header(run=1, round=1, family="srht", d=2 * b, b=b, key=Key(31).fold_in(seed), codec="sign1")
    frames = encode_batch(np.repeat(v[None], n, axis=0), header, rounding=[Key(7).fold_in(seed, i) for i in range(n)])
    return decode_batch(dict(enumerate(frames)), header).values


def dithered(v: Array, n: int, seed: int) -> Array:
    """Bits of r > τ behind the shipped rotation."""
    rng, key = np.random.default_rng([4, seed]), Key(32).fold_in(seed)
    salts, scale = rng.integers(SALTS, size=n).tolist(), np.sqrt(v @ v / len(v))
    r = rotate(np.repeat(v[None] / scale, n, axis=0).astype(np.float32), key, salts)
    grid, cumulative, density = _thresholds()
    tau = np.interp(rng.random(r.shape), cumulative, grid)
    half = 0.5 / np.interp(tau, grid, density)
    value = np.where(r > tau, half, -half) - (1 - 2 * gauss.cdf(tau)) * half
    return rotate_back((value * scale).astype(np.float32), key, salts)


CODES: dict[str, Code] = {"plain": plain, "two passes": two_passes, "shipped": shipped, "dithered": dithered}


@cache
def _hadamard(size: int) -> Array:
    H = np.ones((1, 1), dtype=np.float32)
    while len(H) < size:
        H = np.block([[H, H], [H, -H]])
    return H / np.float32(np.sqrt(size))


@cache
def _thresholds() -> tuple[Array, Array, Array]:
    """A grid of τ, the distribution function and the density of the thresholds there."""
    grid = np.linspace(-12, 12, 200_001)
    root = np.sqrt(gauss.cdf(grid) * gauss.sf(grid))
    steps = (root[1:] + root[:-1]) / 2 * np.diff(grid)
    total = steps.sum()
    return grid, np.concatenate([[0.0], np.cumsum(steps)]) / total, root / total


def measure(code: Code, v: Array, n: int) -> dict[str, float]:
    """Bias with its error, omega = E|C(v) - v|²/|v|², and CPU microseconds of a message both ways."""
    size, means, energy, start = float(v.astype(np.float64) @ v), [], 0.0, time.process_time()
    chunks = max(1, n // 2 // CHUNK)
    for half in range(2):
        total = np.zeros(len(v))
        for chunk in range(chunks):
            error = code(v, CHUNK, half * chunks + chunk).astype(np.float64) - v
            total, energy = total + error.sum(axis=0), energy + np.square(error).sum()
        means.append(total / (chunks * CHUNK))
    sent = 2 * chunks * CHUNK
    omega = float(energy / sent / size)
    resolution = math.sqrt(omega / (sent / 2) / math.sqrt(len(v)))
    bias = math.sqrt(max(0.0, float(means[0] @ means[1]) / size))
    micros = 1e6 * (time.process_time() - start) / sent
    return {"bias": bias, "error": resolution, "omega": omega, "microseconds": micros}


def messages(b: int, effort: float) -> int:
    """Enough to see a bias of half a per cent where the shipped code has next to none, of one per cent below."""
    return max(2 * CHUNK, round(effort * (8_000 if b < 16 else 80_000 / math.sqrt(b))))


def worst(code: Code, b: int, effort: float) -> dict[str, Any]:
    """The vector on which a code is most biased, and over all vectors the largest and median omega, the median time."""
    found = {name: measure(code, v, messages(b, effort)) for name, v in vectors(b).items()}
    name = max(found, key=lambda name: found[name]["bias"])
    return {
        "b": b,
        "vector": name,
        "bias": found[name]["bias"],
        "error": found[name]["error"],
        "omega": float(np.median([row["omega"] for row in found.values()])),
        "worst_omega": max(row["omega"] for row in found.values()),
        "microseconds": float(np.median([row["microseconds"] for row in found.values()])),
    }


def main() -> None:
    """Measure and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--effort", type=float, default=1.0, help="multiplies the number of messages")
    arguments = parser.parse_args()
    rows = []
    for b in FINE:
        for name, code in CODES.items():
            if name == "shipped" or b in SIZES:
                rows.append({"code": name, **worst(code, b, arguments.effort / (1 if name == "shipped" else 4))})
                print(json.dumps(rows[-1]), flush=True)
    arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
