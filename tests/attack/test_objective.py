"""G and L_R: derivatives against finite differences and autograd, and the ways updates are mixed."""

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters

from desketch import Key, draw
from desketch.attack.noise import ObservedNoise, whiten
from desketch.attack.objective import Objective, Observation
from desketch.attack.update import LocalUpdate
from desketch.errors import InputError


@pytest.mark.parametrize("model", ["mlp-tanh", "lenet"])
def test_gradient_is_torch_autograds(world, model):
    update = world.update(model)
    x, y = world.private()
    net = update.model
    loss = cross_entropy(
        functional_call(net, {n: p.requires_grad_() for n, p in net.named_parameters()}, (x.reshape(1, 1, 8, 8),)), y
    )
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(net.parameters()))])
    torch.testing.assert_close(update(update.weights(), x, y), expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch": 2},
        {"clients": 2},
        {"K": 3, "eta_local": 0.1},
        {"K": 2, "eta_local": 0.1, "batch": 2, "schedule": ((0,), (1,))},
        {"clip": 0.5},
    ],
)
def test_jacobian_matches_finite_differences(world, options):
    update = world.update(**options)
    w, (x, y) = update.weights(), world.private(update.examples)
    Phi = update.jacobian(w, x, y)[1]
    v = torch.randn(x.numel(), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    difference = (update(w, x + 1e-5 * v, y) - update(w, x - 1e-5 * v, y)) / 2e-5
    torch.testing.assert_close(v @ Phi, difference, rtol=1e-5, atol=1e-8)
    g, pull = update.pull(w, x, y)
    torch.testing.assert_close(pull(g), Phi @ g)


def test_unrolled_steps_are_sgd(world):
    update = world.update(K=4, eta_local=0.3, batch=2)
    x, y = world.private(2)
    net, w = update.model, update.weights()
    vector_to_parameters(w.clone(), net.parameters())
    optimiser = torch.optim.SGD([p.requires_grad_() for p in net.parameters()], lr=0.3)
    for _ in range(4):
        optimiser.zero_grad()
        cross_entropy(net(x.reshape(2, 1, 8, 8)), y).backward()
        optimiser.step()
    torch.testing.assert_close(update(w, x, y), torch.nn.utils.parameters_to_vector(net.parameters()) - w)


def test_average_of_clients_is_the_batch_gradient_when_k_is_one(world):
    x, y = world.private(3)
    one, many = world.update(batch=3), world.update(clients=3)
    torch.testing.assert_close(one(one.weights(), x, y), many(one.weights(), x, y))


def test_clip_bounds_every_example(world):
    update = world.update(batch=2, clip=0.01)
    x, y = world.private(2)
    assert float(update(update.weights(), x, y).norm()) <= 0.01 * (1 + 1e-12)


@pytest.mark.parametrize("family", ["countsketch", "srht", "gaussian"])
@pytest.mark.parametrize(
    "noise",
    [ObservedNoise(), ObservedNoise(before=0.01), ObservedNoise(after=0.1), ObservedNoise(before=0.01, after=0.1)],
)
def test_objective_gradient_is_twice_j_transposed_r(world, family, noise):
    objective, x = world.observe(world.update(), 80, family=family, noise=noise, rounds=2)
    x = x + 0.1
    r, J = objective.linearise(x)
    loss, gradient = objective.gradient(x)
    assert loss == pytest.approx(float(r @ r)) == pytest.approx(objective.loss(x))
    torch.testing.assert_close(gradient, 2 * J.T @ r)
    assert objective.measurements == 160


def test_truth_leaves_no_residual_without_noise(world):
    objective, x = world.observe(world.update(K=5, eta_local=0.1, batch=2), 150)
    assert objective.loss(x) < 1e-24


@pytest.mark.parametrize("family", ["countsketch", "srht", "gaussian", "uniform"])
def test_whitened_noise_is_standard(family):
    R = draw(family, d=500, b=200, key=Key(3))
    noise = ObservedNoise(before=0.3, after=0.0)
    W = whiten(noise, R, 200, scale=1.0)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([W(noise.sample(R, 200, generator)) for _ in range(60)])
    n = draws.numel()
    assert abs(float(draws.square().sum()) - n) / (2 * n) ** 0.5 < 4.5
    v = torch.randn(draws.shape[1], generator=generator, dtype=torch.float64)
    u = torch.randn(200, generator=generator, dtype=torch.float64)
    assert float(W(u) @ v) == pytest.approx(float(u @ W.transpose(v, 200)))


def test_empty_buckets_are_dropped():
    R = draw("countsketch", d=64, b=64, key=Key(1), layout="textbook")
    W = whiten(ObservedNoise(before=1.0), R, 64, scale=1.0)
    filled = int((abs(R.to_dense()).sum(1) > 0).sum())
    assert filled < 64
    assert W(torch.zeros(64, dtype=torch.float64)).numel() == filled


@pytest.mark.parametrize(
    "options",
    [{"K": 2}, {"K": 0, "eta_local": 0.1}, {"K": 2, "eta_local": 0.1, "schedule": ((0,),)}, {"batch": 0}],
)
def test_impossible_updates_are_refused(world, options):
    with pytest.raises(InputError):
        world.update(**options)


def test_mismatched_observations_are_refused(world):
    update = world.update()
    R = draw("srht", d=update.d, b=80, key=Key(0))
    with pytest.raises(InputError, match="80"):
        Observation(update.weights(), R, torch.zeros(79))
    with pytest.raises(InputError, match="2410"):
        Observation(update.weights()[1:], R, torch.zeros(80))
    with pytest.raises(InputError, match="at least one"):
        Objective(update, [], torch.tensor([1]))
    with pytest.raises(InputError, match="targets"):
        Objective(update, [Observation(update.weights(), R, torch.zeros(80))], torch.tensor([1, 2]))
    with pytest.raises(InputError):
        ObservedNoise(before=-1.0)
    assert isinstance(update, LocalUpdate)
