"""Where privacy's randomness comes from: the operating system, and nowhere else.

`OsEntropy` turns ``os.urandom`` bytes into uniforms, discrete Gaussians (`discrete_gaussian`, exact) and, by Box and
Muller, into Gaussians.  No seed exists, so neither the public `Key`, nor torch's or NumPy's global generators, nor a
checkpoint can predict or repeat the noise.  (A ``torch.Generator`` would not do: the CPU one is a Mersenne Twister
behind a 32-bit seed.)  52-bit uniforms reach 8.5 standard deviations; doubles are not the real line, and attacks on
floating-point noise (Mironov 2012) are out of scope for `Entropy.normal`, not for `Entropy.discrete_normal`.

`SeededNoiseNotPrivate` repeats itself for tests.  Its runs are marked NOT PRIVATE and no accountant speaks for them.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.errors import InputError, PrivacyError
from desketch.privacy.discrete_gaussian import discrete_gaussian

__all__ = ["Entropy", "OsEntropy", "SeededNoiseNotPrivate"]


class Entropy(ABC):
    """A source of random bytes, and the numbers made of them."""

    not_private: str = ""

    @abstractmethod
    def draw(self, size: int) -> bytes:
        """Return ``size`` fresh bytes."""

    def check(self) -> None:
        """Refuse a source that fails or repeats itself, before anything is released under its noise."""
        first, second = self.draw(32), self.draw(32)
        if len(first) != 32 or first == second or len(set(first)) == 1:
            raise PrivacyError("the source of privacy noise repeats itself; nothing was released. Repair it first")

    def uniform(self, n: int) -> npt.NDArray[np.float64]:
        """Return ``n`` uniforms in the open interval (0, 1): odd multiples of 2^-53."""
        words = np.frombuffer(self.draw(8 * n), dtype=np.uint64)
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def normal(self, *shape: int, std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of independent N(0, std^2)."""
        if not (np.isfinite(std) and std >= 0):
            raise InputError(f"a standard deviation is finite and not negative, got {std!r}")
        n = int(np.prod(shape, dtype=np.int64))
        half = -(-n // 2)
        u = self.uniform(2 * half)
        radius, angle = np.sqrt(-2.0 * np.log(u[:half])), (2.0 * np.pi) * u[half:]
        values = np.empty(2 * half)
        np.multiply(radius, np.cos(angle), out=values[:half])
        np.multiply(radius, np.sin(angle), out=values[half:])
        return torch.from_numpy(values[:n] * std).to(dtype).reshape(shape)

    def discrete_normal(self, *shape: int, s: int) -> Tensor:
        """Return an int64 tensor of independent discrete Gaussians N_Z(0, s^2)."""
        n = int(np.prod(shape, dtype=np.int64))
        return torch.from_numpy(discrete_gaussian(self.draw, n, s)).reshape(shape)


class OsEntropy(Entropy):
    """The operating system's cryptographic generator: the only source a private run uses."""

    def draw(self, size: int) -> bytes:
        """Return ``size`` bytes of ``os.urandom``; without them nothing may be released."""
        try:
            drawn = os.urandom(size)
        except (OSError, NotImplementedError) as error:
            raise PrivacyError(
                f"the operating system gives no random bytes ({error}); nothing was released. Repair its "
                "generator (/dev/urandom, getrandom) and resume the run"
            ) from error
        if len(drawn) != size:
            raise PrivacyError(f"the operating system gave {len(drawn)} of {size} random bytes; nothing was released")
        return drawn

    def __repr__(self) -> str:
        return "OsEntropy()"


class SeededNoiseNotPrivate(Entropy):
    """Repeatable randomness for tests.  A run that uses it gives NO privacy and says so everywhere."""

    not_private = "NOT PRIVATE: the noise came from a fixed seed, for testing"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls = 0

    def draw(self, size: int) -> bytes:
        """Return the next ``size`` bytes of a stream fixed by the seed."""
        self._calls += 1
        return hashlib.shake_128(f"desketch test noise {self._seed} {self._calls}".encode()).digest(size)

    def __repr__(self) -> str:
        return f"SeededNoiseNotPrivate({self._seed})"
