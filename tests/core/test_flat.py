"""A module without memory of its own: it follows the vector it rests on, and never writes to it."""

import torch
from torch import nn

from desketch.core.flat import FlatModel


def test_a_module_that_rests_on_w_follows_it_until_it_is_loaded():
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    weight = module[0].weight
    model = FlatModel(module)
    w = model.flatten()
    model.rest_on(w)
    w.mul_(2)
    assert torch.equal(model.flatten(), w)
    assert module[0].weight is weight
    before = w.clone()
    model.load(torch.zeros_like(w))
    assert torch.equal(w, before)
    assert torch.equal(model.flatten(), torch.zeros_like(w))
    w.add_(1)
    assert torch.equal(model.flatten(), torch.zeros_like(w))
