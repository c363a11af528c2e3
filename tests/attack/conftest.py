"""Small targets: digits, a tanh MLP, the DLG LeNet, and one observed sketch of a gradient."""

from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from desketch import Key, draw
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.prior import GaussianPrior
from desketch.attack.update import LocalUpdate


def mlp_tanh() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def lenet() -> nn.Module:
    def block(inputs, stride):
        return [nn.Conv2d(inputs, 12, 5, padding=2, stride=stride), nn.Sigmoid()]

    return nn.Sequential(*block(1, 2), *block(12, 2), *block(12, 1), nn.Flatten(), nn.Linear(48, 10))


MODELS = {"mlp-tanh": mlp_tanh, "lenet": lenet}


@dataclass(frozen=True)
class World:
    """Private pictures (the first ones), public pictures (the rest), and a way to observe."""

    x: Tensor
    y: Tensor
    prior: GaussianPrior

    def update(self, model="mlp-tanh", *, seed=0, **options) -> LocalUpdate:
        torch.manual_seed(seed)
        return LocalUpdate(MODELS[model](), (1, 8, 8), **options)

    def private(self, examples=1, first=0) -> tuple[Tensor, Tensor]:
        return self.x[first : first + examples].reshape(-1), self.y[first : first + examples]

    def observe(self, update, b, *, family="srht", seed=0, noise=None, rounds=1) -> tuple[Objective, Tensor]:
        x, y = self.private(update.examples, first=10 * seed)
        generator = torch.Generator().manual_seed(seed)
        noise, seen = noise or ObservedNoise(), []
        for t in range(rounds):
            w = update.weights() + 0.01 * t * torch.randn(update.d, generator=generator, dtype=torch.float64)
            R = draw(family, d=update.d, b=b, key=Key(seed).fold_in("round", t))
            seen.append(Observation(w, R, R.sketch(update(w, x, y)) + noise.sample(R, b, generator), noise))
        return Objective(update, seen, y), x


@pytest.fixture(scope="session")
def world() -> World:
    digits = load_digits()
    x, y = torch.tensor(digits.images / 16.0), torch.tensor(digits.target)
    return World(x[:400].reshape(-1, 64), y[:400], GaussianPrior.fit(x[400:]))
