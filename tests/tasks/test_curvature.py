"""Curvature estimates: exact on known matrices, close to the dense Hessian of a small model."""

import pytest
import torch

from desketch.core.flat import FlatModel
from desketch.errors import ConfigError, InputError
from desketch.tasks import RunConfig, build_model, load_task, partition
from desketch.tasks.curvature import estimate_curvature, hutchinson, lanczos
from desketch.tasks.run_constants import estimate_run


@pytest.fixture(scope="module")
def matrix():
    A = torch.randn(40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return A + A.T


def test_lanczos_finds_the_largest_eigenvalue(matrix):
    exact = float(torch.linalg.eigvalsh(matrix).abs().max())
    assert lanczos(lambda v: matrix @ v, 40, steps=40) == pytest.approx(exact)
    assert lanczos(lambda v: 3.0 * v, 40) == pytest.approx(3.0)  # one step spans the Krylov space
    assert lanczos(lambda v: 0.0 * v, 5) == 0.0


def test_hutchinson_is_unbiased(matrix):
    off_diagonal = 2 * float((matrix - torch.diag(matrix.diag())).square().sum())
    error = (off_diagonal / 400) ** 0.5
    assert abs(hutchinson(lambda v: matrix @ v, 40, probes=400) - float(matrix.trace())) < 4.5 * error
    assert hutchinson(lambda v: torch.diag(matrix.diag()) @ v, 40, probes=1) == pytest.approx(float(matrix.trace()))


def test_estimates_match_the_dense_hessian():
    task = load_task("digits")
    model = FlatModel(build_model("softmax", task, seed=0))
    w0 = model.flatten()
    w = w0 - 0.5 * model.gradient(w0, task.x_train, task.y_train)
    x, y = task.x_train[:200], task.y_train[:200]
    got = estimate_curvature(model, w0, w, [(x[:100], y[:100]), (x[100:], y[100:])], examples=200)
    H = torch.autograd.functional.hessian(lambda u: model.loss(u, x, y), w)
    top = float(torch.linalg.eigvalsh(H).max())
    assert 0.99 * top <= got.L
    assert got.trace_ratio == pytest.approx(float(H.trace()) / top, rel=0.25)
    gradients = torch.stack([model.gradient(w, x[:100], y[:100]), model.gradient(w, x[100:], y[100:])])
    half = float((gradients[0] - gradients[1]).norm()) / 2
    assert got.sigma_star == pytest.approx(half, rel=1e-4)
    assert got.distance == pytest.approx(float((w - w0).norm()))
    assert got.zeta >= got.sigma_star
    start = torch.stack([model.gradient(w0, x[:100], y[:100]), model.gradient(w0, x[100:], y[100:])]).mean(0)
    assert got.gradient_square == pytest.approx(float(start.square().sum()), rel=1e-4)
    assert got.gradient_noise == 0.0
    with pytest.raises(InputError, match="no client"):
        estimate_curvature(model, w0, w, [])


def test_a_run_without_weights_is_descended_and_one_with_weights_is_read(tmp_path):
    from safetensors.torch import save_file

    config = RunConfig(task="digits", model="softmax", clients=3, partition="iid")
    config.save(tmp_path / "config.yaml")
    assert estimate_run(tmp_path).distance > 0
    task = load_task("digits", validation=config.validation, seed=config.seed)
    module = build_model("softmax", task, seed=0)
    save_file({name: p.detach().contiguous() for name, p in module.named_parameters()}, tmp_path / "model.safetensors")
    assert estimate_run(tmp_path).distance == pytest.approx(0.0)
    assert len(partition(task, "iid", 3, 0)) == estimate_run(tmp_path).N
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="another model"):
        estimate_run(tmp_path)


def test_mini_batch_noise_is_that_of_sampling_without_replacement():
    task = load_task("digits")
    model = FlatModel(build_model("softmax", task, seed=0))
    w = model.flatten()
    x, y = task.x_train[:60], task.y_train[:60]
    each = torch.stack([model.gradient(w, x[i : i + 1], y[i : i + 1]) for i in range(60)])
    variance = float((each - each.mean(0)).square().sum(1).sum() / 59)
    got = estimate_curvature(model, w, w, [(x, y)], batch=10)
    assert got.gradient_noise == pytest.approx((variance / 10 * (1 - 10 / 60)) ** 0.5, rel=0.15)
    assert estimate_curvature(model, w, w, [(x, y)], batch=60).gradient_noise == pytest.approx(0.0, abs=1e-6)
