"""A module without memory of its own: it follows the vector it rests on, and never writes to it."""

import torch
from hypothesis import given
from hypothesis import strategies as st
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


@given(st.integers(0, 28), st.integers(1, 40))
def test_a_part_of_w_is_that_part_of_all_of_it(start, length):
    flat = FlatModel(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 1)))  # 16 + 10 + 3 numbers
    cut = slice(start, start + length)
    assert torch.equal(flat.flatten(cut), flat.flatten()[cut])
