"""Models: the sizes of the measurements, initial weights from the seed alone, and what is refused."""

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from desketch.errors import ConfigError
from desketch.tasks import build_model, task_from_arrays

SIZES = {
    "softmax": (650, 7850),
    "mlp:64": (4810, 50_890),
    "mlp:256-128": (50_826, 235_146),
    "mlp-tanh:32": (2410, 25_450),
    "cnn": (18_250, 156_490),
    "lenet": (8026, 13_426),
}


def images(side):
    return task_from_arrays(np.zeros((20, side, side)), np.arange(20) % 10)


@pytest.mark.parametrize("spec", SIZES)
def test_size_output_and_seed(spec):
    for side, d in zip((8, 28), SIZES[spec], strict=True):
        task = images(side)
        before = torch.get_rng_state()
        first, again, other = (build_model(spec, task, seed=seed) for seed in (1, 1, 2))
        assert torch.equal(before, torch.get_rng_state())
        w, same, differs = (nn.utils.parameters_to_vector(model.parameters()) for model in (first, again, other))
        assert w.numel() == d
        assert torch.equal(w, same)
        assert not torch.equal(w, differs)
        assert first(task.x_train[:3]).shape == (3, 10)


@pytest.mark.parametrize("spec", SIZES)
def test_every_model_can_be_batched_over_clients(spec):
    task = images(8)
    model = build_model(spec, task)
    w = {name: torch.stack([p.detach(), 0.9 * p.detach()]) for name, p in model.named_parameters()}
    x, y = torch.rand(2, 4, 1, 8, 8), torch.arange(8).reshape(2, 4)

    def loss(w, x, y):
        return nn.functional.cross_entropy(functional_call(model, w, (x,)), y)

    batched = vmap(grad(loss))(w, x, y)
    for c in range(2):
        single = grad(loss)({name: p[c] for name, p in w.items()}, x[c], y[c])
        for name, g in single.items():
            torch.testing.assert_close(batched[name][c], g, atol=1e-5, rtol=1e-4)


def test_models_of_ones_own(monkeypatch, blobs):
    module = types.ModuleType("mynet")
    module.small = lambda task: nn.Linear(task.input_shape[0], task.classes)
    module.normed = lambda task: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, task.classes))
    module.frozen = lambda task: nn.Identity()
    module.number = lambda task: 3
    monkeypatch.setitem(sys.modules, "mynet", module)
    assert build_model("mynet:small", blobs)(blobs.x_test).shape == (6, 3)
    for name, reason in {
        "normed": "1 .BatchNorm1d.*GroupNorm",
        "frozen": "no trainable parameter",
        "number": "returned int",
        "absent": "cannot import",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            build_model(f"mynet:{name}", blobs)
    with pytest.raises(ConfigError, match="PYTHONPATH"):
        build_model("no_such_module:f", blobs)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("resnet", "unknown model"),
        ("softmax:3", "no argument"),
        ("mlp:", "hidden widths"),
        ("mlp:0", "hidden widths"),
        ("mlp:12-", "hidden widths"),
        ("cnn", "images of at least 4x4"),
        ("lenet", "images of at least 4x4"),
    ],
)
def test_bad_specs_are_refused(blobs, spec, reason):
    with pytest.raises(ConfigError, match=reason):
        build_model(spec, blobs)
