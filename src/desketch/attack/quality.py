"""How good a reconstruction is: MSE, PSNR and SSIM against the truth, and the order-free match of a batch.

Pictures live in [0, 1], so PSNR = -10 log10 MSE.  SSIM follows Wang, Bovik, Sheikh, Simoncelli (IEEE TIP 2004) with
a uniform window of the picture's size or 7, whichever is less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import avg_pool2d

__all__ = ["Quality", "match", "mse_of", "psnr", "quality", "ssim"]

_PSNR_CAP = 200.0  # float64 leaves at best about 300 dB: past this a number says nothing


@dataclass(frozen=True)
class Quality:
    """MSE, PSNR in dB and SSIM, averaged over the examples."""

    mse: float
    psnr: float
    ssim: float


def psnr(mse: float) -> float:
    """-10 log10 MSE, at most 200 dB."""
    return _PSNR_CAP if mse <= 10 ** (-_PSNR_CAP / 10) else -10 * math.log10(mse)


def mse_of(psnr_db: float) -> float:
    """The MSE of a PSNR."""
    return float(10 ** (-psnr_db / 10))


def match(x: Tensor, truth: Tensor) -> Tensor:
    """Reorder the examples of x (n, ...) to fit the truth: the order inside a batch is not observable."""
    cost = torch.cdist(truth.reshape(len(truth), -1), x.reshape(len(x), -1)).square()
    return x[torch.from_numpy(linear_sum_assignment(cost.numpy())[1])]


def quality(x: Tensor, truth: Tensor) -> Quality:
    """Compare examples (n, ...) in the best order."""
    x = match(x, truth)
    mse = float((x - truth).square().mean())
    pairs = zip(x, truth, strict=True)
    return Quality(mse, psnr(mse), sum(ssim(a, b) for a, b in pairs) / len(truth))


def ssim(x: Tensor, truth: Tensor) -> float:
    """Mean structural similarity of two pictures (..., height, width) with values in [0, 1]; vectors are one row."""
    a, b = (v.double().reshape(1, -1, *(v.shape[-2:] if v.ndim > 1 else (1, v.numel()))) for v in (x, truth))
    window = (min(7, a.shape[-2]), min(7, a.shape[-1]))
    n = window[0] * window[1]

    def mean(v: Tensor) -> Tensor:
        return avg_pool2d(v, window, stride=1)

    ma, mb = mean(a), mean(b)
    bessel = n / max(n - 1, 1)
    va, vb, cov = (bessel * (mean(p) - q) for p, q in ((a * a, ma * ma), (b * b, mb * mb), (a * b, ma * mb)))
    c1, c2 = 0.01**2, 0.03**2
    score = ((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma.square() + mb.square() + c1) * (va + vb + c2))
    return float(score.mean())
