"""The torch operators of the reference path: small, plain, on any device; the oracle of the compiled kernels.

An operator is R = diag(scale) R0 where R0 has entries 0, ±1 or N(0, 1).  De-sketching scales the b numbers first and
then only adds, in the order the spec gives, so that it agrees with the kernels bit for bit.  `Hartley` alone goes
through an FFT library: it works in float64 and rounds once, so that platforms differ as rarely as can be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import scipy  # its FFT is imported at first use
import torch
from torch import Tensor

__all__ = ["Columns", "Hadamard", "Hartley", "LinearMap", "Rows", "Selection"]

Array = npt.NDArray[np.generic]


class LinearMap(ABC):
    """A b x d operator on the rows of a 2-D tensor."""

    @abstractmethod
    def apply(self, g: Tensor) -> Tensor:
        """``(n, d) -> (n, b)``."""

    @abstractmethod
    def apply_t(self, s: Tensor) -> Tensor:
        """``(n, b) -> (n, d)``."""


def _on(array: Array, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device=like.device, dtype=dtype)


class Rows(LinearMap):
    """A dense R0, made a band of rows at a time by ``band(first, last) -> (last - first, d)``."""

    def __init__(self, d: int, b: int, scale: float, band: Callable[[int, int], Array]) -> None:
        self.d, self.b, self.scale, self.band = d, b, scale, band

    def _bands(self, like: Tensor) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, (1 << 22) // self.d)
        for first in range(0, self.b, step):
            last = min(first + step, self.b)
            yield slice(first, last), _on(self.band(first, last), like, like.dtype)

    def apply(self, g: Tensor) -> Tensor:
        """Multiply by one band of rows after the other."""
        return torch.cat([g @ Z.T for _, Z in self._bands(g)], dim=1) * self.scale

    def apply_t(self, s: Tensor) -> Tensor:
        """Sum over the bands."""
        out = s.new_zeros(len(s), self.d)
        for rows, Z in self._bands(s):
            out += (s[:, rows] * self.scale) @ Z
        return out


class Columns(LinearMap):
    """A sparse R0 with one ±1 per column in each of ``nnz`` layers: row ``rows[j, i]``, value ``signs[j, i]``."""

    def __init__(self, b: int, scale: Array, rows: Array, signs: Array) -> None:
        self.b, self.scale, self.rows, self.signs = b, scale, rows, signs

    def apply(self, g: Tensor) -> Tensor:
        """Scatter-add every layer."""
        out = g.new_zeros(len(g), self.b)
        for rows, signs in zip(self.rows, self.signs, strict=True):
            out.index_add_(1, _on(rows, g), g * _on(signs, g))
        return out * _on(self.scale, g, g.dtype)

    def apply_t(self, s: Tensor) -> Tensor:
        """Gather every layer and add them in order."""
        scaled = s * _on(self.scale, s, s.dtype)
        layers = (scaled[:, _on(r, s)] * _on(v, s) for r, v in zip(self.rows, self.signs, strict=True))
        out = next(layers)
        for layer in layers:
            out = out + layer
        return out


class Selection(LinearMap):
    """R0 = S D: coordinate ``rows[k]`` with sign ``signs[k]``."""

    def __init__(self, d: int, scale: float, rows: Array, signs: Array) -> None:
        self.d, self.scale, self.rows, self.signs = d, scale, rows, signs

    def apply(self, g: Tensor) -> Tensor:
        """Gather, sign, scale."""
        return g[:, _on(self.rows, g)] * _on(self.signs, g) * self.scale

    def apply_t(self, s: Tensor) -> Tensor:
        """Scale, sign, scatter."""
        out = s.new_zeros(len(s), self.d)
        out[:, _on(self.rows, s)] = s * self.scale * _on(self.signs, s)
        return out


class Hadamard(LinearMap):
    """R0 = S (I ⊗ H) D: rows ``rows`` of Hadamard transforms of ``size`` numbers, one per segment of the padded input.

    ``segment <= size`` is the length of the transforms really done: row ``lo * count + hi`` is the sum over the
    ``count = size / segment`` segments of ``(-1)^<hi, segment>`` times number ``lo`` of the segment's own transform.
    """

    def __init__(self, d: int, size: int, segment: int, scale: float, rows: Array, signs: Array) -> None:
        self.d, self.segment, self.count, self.scale, self.signs = d, segment, size // segment, scale, signs
        self.transforms = -(-d // size)
        transform, row = np.divmod(rows.astype(np.int64), size)
        lo, self.hi = np.divmod(row, self.count)
        self.place = transform * segment + lo

    def _flips(self, segment: int) -> Array:
        t = self.hi & segment
        for shift in (16, 8, 4, 2, 1):
            t = t ^ (t >> shift)
        return (1 - 2 * (t & 1)).astype(np.int8)

    def _segments(self) -> Iterator[tuple[Array, slice]]:
        """The signs that kept rows see, and the coordinates: of one segment, or of all blocks at once."""
        step = self.transforms * self.segment
        for c in range(-(-self.d // step)):
            yield self._flips(c), slice(c * step, min((c + 1) * step, self.d))

    def _transform(self, x: Tensor) -> Tensor:
        return fwht(x.reshape(len(x), self.transforms, self.segment)).reshape(x.shape)

    def apply(self, g: Tensor) -> Tensor:
        """Transform each segment; every kept row collects its number, with the sign of <hi, segment>."""
        out = g.new_zeros(len(g), len(self.place))
        for flips, here in self._segments():
            x = g.new_zeros(len(g), self.transforms * self.segment)
            x[:, : here.stop - here.start] = g[:, here] * _on(self.signs[here], g)
            out += self._transform(x)[:, _on(self.place, g)] * _on(flips, g)
        return out * self.scale

    def apply_t(self, s: Tensor) -> Tensor:
        """Scatter the kept rows into each segment in ascending order, transform, sign."""
        out = s.new_empty(len(s), self.d)
        scaled = s * self.scale
        for flips, here in self._segments():
            x = s.new_zeros(len(s), self.transforms * self.segment)
            x.index_add_(1, _on(self.place, s), scaled * _on(flips, s))
            out[:, here] = self._transform(x)[:, : here.stop - here.start] * _on(self.signs[here], s)
        return out


class Hartley(LinearMap):
    """R0 = S H D with H[r, i] = cas(2π r i/d): rows ``rows`` of the discrete Hartley transform of d numbers.

    It runs on the host in float64, whatever the device and dtype of the data, and rounds once at the end: one code
    path, so that replicas on a CPU and on a GPU of one machine agree.
    """

    def __init__(self, d: int, scale: float, rows: Array, signs: npt.NDArray[np.int8]) -> None:
        self.d, self.scale, self.rows, self.signs = d, scale, rows.astype(np.int64), signs

    def apply(self, g: Tensor) -> Tensor:
        """Sign, transform, gather, scale."""
        x = dht(g.double().cpu().numpy() * self.signs)[:, self.rows] * self.scale
        return _on(x, g, g.dtype)

    def apply_t(self, s: Tensor) -> Tensor:
        """Scale, scatter, transform (H is symmetric), sign."""
        x = np.zeros((len(s), self.d))
        x[:, self.rows] = s.double().cpu().numpy() * self.scale
        return _on(dht(x) * self.signs, s, s.dtype)


def dht(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The unnormalised discrete Hartley transform of the last axis: Re X - Im X of its Fourier transform X.

    Σ_i x_i cas(2π r i/d) = Re X_r - Im X_r for r <= d/2, and Re X_{d-r} + Im X_{d-r} above, where X is the conjugate of
    its mirror image.
    """
    d = x.shape[-1]
    if not x.size:
        return x
    X = scipy.fft.rfft(x, axis=-1)
    mirrored = X[..., (d - 1) // 2 : 0 : -1]
    return np.concatenate([X.real - X.imag, mirrored.real + mirrored.imag], axis=-1)


def fwht(x: Tensor) -> Tensor:
    """The unnormalised Walsh-Hadamard transform of the last axis, by butterflies at distance 1, 2, 4, ..."""
    n, h = x.shape[-1], 1
    while h < n:
        a, b = x.reshape(*x.shape[:-1], n // (2 * h), 2, h).unbind(-2)
        x = torch.stack([a + b, a - b], dim=-2).reshape(*x.shape[:-1], n)
        h *= 2
    return x
