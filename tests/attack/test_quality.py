"""MSE, PSNR, SSIM and the order-free match."""

import pytest
import torch

from desketch.attack.quality import match, psnr, quality, ssim


def test_identity_is_perfect(world):
    x = world.x[:3].reshape(3, 1, 8, 8)
    q = quality(x, x)
    assert (q.mse, q.psnr, q.ssim) == (0.0, 200.0, pytest.approx(1.0))


def test_batch_order_does_not_count(world):
    x = world.x[:5].reshape(5, 1, 8, 8)
    shuffled = x[torch.tensor([3, 1, 4, 0, 2])]
    torch.testing.assert_close(match(shuffled, x), x)
    assert quality(shuffled, x).mse == 0.0


def test_psnr_and_ssim_fall_with_noise(world):
    x = world.x[:1].reshape(1, 8, 8)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = [ssim(x + s * noise, x) for s in (0.0, 0.05, 0.5)]
    assert scores == sorted(scores, reverse=True)
    assert psnr(0.01) == pytest.approx(20.0)
    assert ssim(torch.zeros(9), torch.ones(9)) < 0.01
