"""What others offer for the same job, called as their documentation says: the peers of ``desketch bench kernels``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Peer", "peers"]

Vector = npt.NDArray[np.float32]
RANK = 4


@dataclass(frozen=True)
class Peer:
    """A call to be timed, and the kernel it is compared with."""

    name: str
    against: str
    d: int
    b: int
    call: Callable[[], object]


def peers(inputs: Iterator[Vector], d: int, b: int, small: Vector, dense_b: int) -> list[Peer]:
    """All peers: most on the next input of size d, scikit-learn (which needs minutes there) on the small vector."""

    def x() -> torch.Tensor:
        return torch.from_numpy(next(inputs))

    short, cached, power = len(small), _hashes(d, b), _PowerStep(d)
    long: dict[str, tuple[str, Callable[[], object]]] = {
        "scipy clarkson_woodruff_transform": ("countsketch", lambda: _clarkson_woodruff(next(inputs), b)),
        "torch index_add_, fresh hashes": ("countsketch", lambda: _index_add(x(), b, *_hashes(d, b))),
        "torch index_add_, cached hashes": ("countsketch", lambda: _index_add(x(), b, *cached)),
        "torch.topk": ("countsketch", lambda: torch.topk(x().abs(), b)),
        f"PowerSGD compress, rank {RANK}": ("countsketch", lambda: power.compress(x())),
        "torch FWHT": ("srht", lambda: _fwht(x())),
    }
    narrow = max(1, short // 100)
    return [Peer(name, against, d, b, call) for name, (against, call) in long.items()] + [
        Peer(
            "sklearn SparseRandomProjection",
            "countsketch, small",
            short,
            narrow,
            lambda: _sparse_projection(small, narrow),
        ),
        Peer(
            "sklearn GaussianRandomProjection", "gaussian", short, dense_b, lambda: _gaussian_projection(small, dense_b)
        ),
    ]


def _clarkson_woodruff(g: Vector, b: int) -> object:
    from scipy.linalg import clarkson_woodruff_transform

    return clarkson_woodruff_transform(g[:, None], b, np.random.default_rng(0))


def _hashes(d: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(b, (d,)), 2.0 * torch.randint(2, (d,)).float() - 1


def _index_add(x: torch.Tensor, b: int, rows: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return torch.zeros(b).index_add_(0, rows, x * signs)


class _PowerStep:
    """P = M Q, orthogonalised, then Q = Mᵀ P: one step of the power iteration on a square matrix M."""

    def __init__(self, d: int) -> None:
        self.rows = math.isqrt(d)
        self.columns = d // self.rows
        self.q = torch.randn(self.columns, RANK)

    def compress(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = x[: self.rows * self.columns].view(self.rows, self.columns)
        p = torch.linalg.qr(matrix @ self.q).Q
        return p, matrix.T @ p


def _fwht(x: torch.Tensor) -> torch.Tensor:
    """The textbook loop over the stages; the tail beyond a power of two is left out."""
    n = 1 << (len(x).bit_length() - 1)
    y, h = x[:n], 1
    while h < n:
        pairs = y.view(-1, 2, h)
        y = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1).view(-1)
        h *= 2
    return y


def _sparse_projection(g: Vector, b: int) -> object:
    """One non-zero a column on average, as CountSketch has."""
    from sklearn.random_projection import SparseRandomProjection

    return SparseRandomProjection(b, density=1 / b, random_state=0).fit_transform(g[None])


def _gaussian_projection(g: Vector, b: int) -> object:
    from sklearn.random_projection import GaussianRandomProjection

    return GaussianRandomProjection(b, random_state=0).fit_transform(g[None])
