"""A NumPy path that draws every family: the oracle in tests, and the fallback without the extension."""

from __future__ import annotations

import numpy as np

from desketch.errors import SketchError
from desketch.keys import Key
from desketch.sketches.base import Sketch

__all__ = ["REFERENCE"]


def _signs(key: Key, n: int) -> np.ndarray:
    return 1.0 - 2.0 * (key.words(n) & 1)


def _subset(key: Key, n: int, b: int) -> np.ndarray:
    return np.sort(np.argsort(key.words(n), kind="stable")[:b])


class _Dense(Sketch):
    @property
    def _matrix(self) -> np.ndarray:
        raise NotImplementedError

    def _apply(self, g: np.ndarray) -> np.ndarray:
        return g @ self._matrix.T

    def _apply_t(self, s: np.ndarray) -> np.ndarray:
        return s @ self._matrix


class Gaussian(_Dense):
    """Entries N(0, 1/b)."""

    family = "gaussian"

    @property
    def _matrix(self) -> np.ndarray:
        u = (self.key.words(2 * self.b * self.d).astype(np.float64) + 0.5) / 2**32
        z = np.sqrt(-2 * np.log(u[0::2])) * np.cos(2 * np.pi * u[1::2])
        return z.reshape(self.b, self.d) / np.sqrt(self.b)

    alpha = property(lambda self: (self.d + 1) / self.b)
    alpha_paper = property(lambda self: 3 * self.d / self.b)


class Ams(_Dense):
    """Entries ±1/sqrt(b)."""

    family = "ams"

    @property
    def _matrix(self) -> np.ndarray:
        return _signs(self.key, self.b * self.d).reshape(self.b, self.d) / np.sqrt(self.b)

    alpha = property(lambda self: (self.d - 1) / self.b)
    alpha_paper = property(lambda self: 2 * self.d / self.b)


class Srht(Sketch):
    """sqrt(n/b) S H D with d padded to n = 2^k."""

    family = "srht"

    def __init__(self, *, d: int, b: int, key: Key) -> None:
        super().__init__(d=d, b=b, key=key)
        self.n = 1 << (d - 1).bit_length()
        self._signs = _signs(key.fold_in("sign"), d)
        self._rows = _subset(key.fold_in("rows"), self.n, b)

    def _fwht(self, x: np.ndarray) -> np.ndarray:
        h = 1
        while h < self.n:
            x = x.reshape(len(x), -1, 2, h)
            x = np.stack([x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]], axis=2)
            h *= 2
        return x.reshape(len(x), self.n)

    def _apply(self, g: np.ndarray) -> np.ndarray:
        x = np.zeros((len(g), self.n))
        x[:, : self.d] = g * self._signs
        return self._fwht(x)[:, self._rows] / np.sqrt(self.b)

    def _apply_t(self, s: np.ndarray) -> np.ndarray:
        x = np.zeros((len(s), self.n))
        x[:, self._rows] = s
        return self._fwht(x)[:, : self.d] * self._signs / np.sqrt(self.b)

    alpha = property(lambda self: (self.d - 1) * (self.n - self.b) / (self.b * max(self.n - 1, 1)))
    alpha_paper = property(lambda self: 2 * self.d / self.b)


class _Hashed(Sketch):
    def __init__(self, *, d: int, b: int, key: Key, nnz: int = 1) -> None:
        super().__init__(d=d, b=b, key=key)
        if not 1 <= nnz <= b:
            raise SketchError(f"nnz must be between 1 and b={b}, got {nnz}")
        self.nnz = nnz
        self._rows, self._values = self._hash()

    def _hash(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _apply(self, g: np.ndarray) -> np.ndarray:
        out = np.zeros((self.b, len(g)))
        for j in range(self.nnz):
            np.add.at(out, self._rows[j], (g * self._values[j]).T)
        return out.T

    def _apply_t(self, s: np.ndarray) -> np.ndarray:
        return sum(s[:, self._rows[j]] * self._values[j] for j in range(self.nnz))

    alpha = property(lambda self: (self.d - 1) / self.b)
    alpha_paper = property(lambda self: (3 if self.family == "countsketch" else 2) * self.d / self.b)


class CountSketch(_Hashed):
    """One ±1 per column."""

    family = "countsketch"

    def __init__(self, *, d: int, b: int, key: Key) -> None:
        super().__init__(d=d, b=b, key=key, nnz=1)

    def _hash(self) -> tuple[np.ndarray, np.ndarray]:
        return (self.key.fold_in("row").words(self.d) % self.b)[None], _signs(self.key.fold_in("sign"), self.d)[None]


class Sparse1(_Hashed):
    """``nnz`` distinct rows per column, ±1/sqrt(nnz)."""

    family = "sparse1"

    def __init__(self, *, d: int, b: int, key: Key, nnz: int = 4) -> None:
        super().__init__(d=d, b=b, key=key, nnz=min(nnz, b))

    def _hash(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.key.fold_in("row").words(self.d * self.b).reshape(self.d, self.b), axis=1)
        signs = _signs(self.key.fold_in("sign"), self.d * self.nnz).reshape(self.nnz, self.d)
        return order[:, : self.nnz].T, signs / np.sqrt(self.nnz)


class Sparse2(_Hashed):
    """One row in each of ``nnz`` sub-tables per column, ±1/sqrt(nnz)."""

    family = "sparse2"

    def __init__(self, *, d: int, b: int, key: Key, nnz: int = 4) -> None:
        super().__init__(d=d, b=b, key=key, nnz=min(nnz, b))

    def _hash(self) -> tuple[np.ndarray, np.ndarray]:
        edges = np.linspace(0, self.b, self.nnz + 1).astype(int)
        words = self.key.fold_in("row").words(self.d * self.nnz).reshape(self.nnz, self.d)
        rows = np.stack([lo + w % (hi - lo) for w, lo, hi in zip(words, edges, edges[1:], strict=False)])
        signs = _signs(self.key.fold_in("sign"), self.d * self.nnz).reshape(self.nnz, self.d)
        return rows, signs / np.sqrt(self.nnz)


class Uniform(Sketch):
    """sqrt(d/b) S D."""

    family = "uniform"

    def __init__(self, *, d: int, b: int, key: Key) -> None:
        super().__init__(d=d, b=b, key=key)
        self._rows = _subset(key.fold_in("rows"), d, b)
        self._scale = _signs(key.fold_in("sign"), d)[self._rows] * np.sqrt(d / b)

    def _apply(self, g: np.ndarray) -> np.ndarray:
        return g[:, self._rows] * self._scale

    def _apply_t(self, s: np.ndarray) -> np.ndarray:
        out = np.zeros((len(s), self.d))
        out[:, self._rows] = s * self._scale
        return out

    alpha = property(lambda self: self.d / self.b - 1)
    alpha_paper = property(lambda self: self.d**2 / self.b)


REFERENCE: dict[str, type[Sketch]] = {
    c.family: c for c in (Gaussian, Srht, Ams, CountSketch, Sparse1, Sparse2, Uniform)
}
