"""DeComFL: the numbers are slopes of the loss, and what they rebuild is the mean of the clients' own steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from desketch.baselines.decomfl import Directions, zeroth_order_clients
from desketch.core.flat import FlatModel
from desketch.errors import InputError
from desketch.fed.client import encode_updates
from desketch.fed.local import ClientData, LocalWork
from desketch.keys import Key

P, K, ETA = 6, 3, 0.05


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 3))


def normed():
    """Behind a convolution of images with their channel last, group norm does not run under vmap."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3))


@pytest.fixture(params=[linear, normed])
def parties(request):
    torch.manual_seed(0)
    model = FlatModel(request.param())
    g = torch.Generator().manual_seed(1)
    images = [torch.randn(20, 1, 6, 6, generator=g).to(memory_format=torch.channels_last) for _ in range(2)]
    data = [ClientData(c, x, torch.randint(3, (20,), generator=g), weight=c + 1.0) for c, x in enumerate(images)]
    channel = Directions(d=model.d, steps=K, directions=P, key=Key(5))
    return model, data, channel, zeroth_order_clients(channel, data, model, LocalWork(steps=K, eta=ETA, batch=None))


def by_gradients(model, data, channel, w, t):
    """The same steps with exact derivatives along the directions (oracle)."""
    u = w.clone()
    for k in range(K):
        R = channel.sketch_at(t, k)
        u = u - ETA * R.desketch(R.sketch(model.gradient(u, data.x, data.y)))
    return u - w


def test_a_clients_steps_are_projected_gradient_steps(parties):
    model, data, channel, clients = parties
    w = model.flatten()
    for one, client in zip(data, clients, strict=True):
        delta, weight = client.update(w, 4)
        expected = by_gradients(model, one, channel, w, 4)
        assert weight == one.weight
        assert (delta - expected).norm() < 0.03 * expected.norm()


def test_a_round_moves_every_replica_by_the_weighted_mean_of_the_clients_changes(parties):
    model, _, channel, clients = parties
    w = model.flatten()
    frames, refused = encode_updates(clients, channel, w, t=2)
    assert not refused
    u = channel.decode_broadcast(2, channel.aggregate(2, frames).broadcast)
    (a, p), (b, q) = (client.update(w, 2) for client in clients)
    mean = (p * a + q * b) / (p + q)
    assert (u.vector - mean).norm() < 0.01 * mean.norm()  # half precision, twice
    assert u.b == K * P


def test_directions_differ_between_rounds_and_steps_and_follow_from_the_key():
    channel = Directions(d=50, steps=2, directions=4, key=Key(5))
    again = Directions(d=50, steps=2, directions=4, key=Key(5))
    R = {(t, k): channel.sketch_at(t, k).to_dense() for t in (1, 2) for k in (0, 1)}
    assert (again.sketch_at(2, 1).to_dense() == R[2, 1]).all()
    for one in R:
        assert sum((R[one] == R[other]).all() for other in R) == 1


def test_a_message_holds_two_bytes_a_direction_and_step_whatever_d_is():
    sizes = set()
    for d in (50, 5000):
        channel = Directions(d=d, steps=2, directions=40, key=Key(5))
        (frame,) = channel.encode_updates(1, torch.ones(1, 80), clients=[0], weights=[1.0])
        sizes.add(len(frame))
    assert len(sizes) == 1
    assert 160 < sizes.pop() < 172


@pytest.mark.parametrize(("steps", "directions"), [(0, 3), (1, 0), (1, 51)])
def test_impossible_sizes_are_refused(steps, directions):
    with pytest.raises(InputError, match="directions"):
        Directions(d=50, steps=steps, directions=directions, key=Key(5))


def test_work_of_another_number_of_steps_is_refused(parties):
    model, data, channel, _ = parties
    with pytest.raises(InputError, match="local steps"):
        zeroth_order_clients(channel, data, model, LocalWork(steps=K + 1))
