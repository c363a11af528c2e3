"""A small federation: Gaussian blobs, a perceptron, a sketch channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from desketch import Key
from desketch.fed import (
    ClientData,
    Federation,
    FlatModel,
    LocalWork,
    Observer,
    RoundRecord,
    SketchChannel,
    make_engine,
    make_optimizer,
    tensor_clients,
)
from desketch.tasks.goals import Classification


class Log(Observer):
    """Keeps every record."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def on_round(self, record: RoundRecord) -> None:
        self.records.append(record)


def blob_clients(n: int, examples: int = 24, classes: int = 3, features: int = 12) -> list[ClientData]:
    g = torch.Generator().manual_seed(5)
    centres = torch.randn(classes, features, generator=g) * 1.5
    clients = []
    for c in range(n):
        y = torch.randint(classes, (examples + c % 3,), generator=g)
        clients.append(ClientData(c, centres[y] + torch.randn(len(y), features, generator=g), y))
    return clients


def perceptron() -> FlatModel:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3)))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(name="blobs")
def blobs_fixture() -> Callable[..., list[ClientData]]:
    return blob_clients


@pytest.fixture(name="perceptron")
def perceptron_fixture() -> Callable[[], FlatModel]:
    return perceptron


@pytest.fixture
def build() -> Callable[..., Federation]:
    def make(
        *, clients: int = 6, optimizer: str = "momentum", eta_global: Any = "auto", engine: str = "auto", **options: Any
    ) -> Federation:
        model, data = options.pop("model", None) or perceptron(), options.pop("data", None) or blob_clients(clients)
        x, y = torch.cat([c.x for c in data]), torch.cat([c.y for c in data])
        channel = options.pop("channel", None) or SketchChannel(
            d=model.d, b=32, key=Key(3), codec=options.pop("codec", "int4"), run=9
        )
        work = options.pop("work", LocalWork(steps=3, eta=0.1, batch=8, seed=1))
        privacy, visit = options.get("privacy"), options.pop("visit", None)
        trainer = make_engine(model, (x[:2], y[:2]), name=engine, privacy=privacy, visit=visit)
        return Federation(
            clients=tensor_clients(data, trainer, work, privacy=privacy),
            channel=channel,
            optimizer=make_optimizer(optimizer, eta_global=eta_global),
            w0=model.flatten(),
            evaluate=lambda w: Classification(3).evaluate(model, w, x, y),
            **options,
        )

    return make
