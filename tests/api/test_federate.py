"""federate: any model, any data, any loop; bad input is refused before training, resume is bit-exact."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset

import desketch as ds
from desketch.errors import ConfigError, InputError, PrivacyError, RunError
from desketch.fed import Observer

# the noise is weak on purpose: these tests look at what is applied, not at what it is worth
pytestmark = pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")

WIRE = ds.Wire(compression=3, codec="int8")


def blobs(n=4, examples=24, features=6, classes=3):
    g = torch.Generator().manual_seed(5)
    centres = 2 * torch.randn(classes, features, generator=g)
    parts = []
    for _ in range(n):
        y = torch.randint(classes, (examples,), generator=g)
        parts.append((centres[y] + torch.randn(examples, features, generator=g), y))
    return parts


def net(seed=0, out=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, out))


def accuracy(model):
    x, y = (torch.cat(part) for part in zip(*blobs(), strict=True))
    return {"accuracy": (model(x).argmax(1) == y).float().mean()}


def train(model=None, clients=None, **changes: Any):
    settings = {"loss": cross_entropy, "rounds": 6, "local_steps": 4, "batch_size": 8, "wire": WIRE, "average": 1}
    clients = [ds.Client(x, y) for x, y in blobs()] if clients is None else clients
    return ds.federate(net() if model is None else model, clients, **(settings | changes))


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def test_the_first_program_of_the_readme():
    model = net()
    run = train(model, rounds=12, evaluate=accuracy)
    assert run.model is model
    assert run.history[-1]["accuracy"] > 0.9
    assert [row["round"] for row in run.history] == list(range(1, 13))
    assert run.bytes_per_client == sum(row["bytes_up"] + row["bytes_down"] for row in run.history) / 4
    assert run.epsilon is None
    assert run.stopped_by == "rounds"


class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Dicts(Rows):
    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


def by_dict(model, batch):
    return cross_entropy(model(batch["x"]), batch["y"])


def test_tensors_arrays_datasets_and_dicts_train_alike():
    """The same batches whatever holds them: one stream of shuffles a client and round."""
    same = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}
    tensors = weights(train(**same))
    arrays = [ds.Client(x.double().numpy(), y.numpy().astype(np.int32)) for x, y in blobs()]
    assert torch.equal(weights(train(clients=arrays, **same)), tensors)
    assert torch.equal(weights(train(clients=[ds.Client(Rows(x, y)) for x, y in blobs()], **same)), tensors)
    dicts = [ds.Client(Dicts(x, y)) for x, y in blobs()]
    assert torch.equal(weights(train(clients=dicts, loss=by_dict, **same)), tensors)
    torch.testing.assert_close(weights(train()), tensors, rtol=1e-3, atol=1e-4)  # the batched engine, to rounding


def loaders():
    return [ds.Client(DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)) for x, y in blobs()]


def test_loaders_are_repeatable_and_cycle():
    assert torch.equal(weights(train(clients=loaders())), weights(train(clients=loaders())))
    assert train(clients=loaders(), local_steps=11, rounds=12, evaluate=accuracy).history[-1]["accuracy"] > 0.8


def own_loop(x, y):
    def loop(model, t):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(5):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x), y))
            optimizer.step()
        return len(y)

    return ds.Client(train=loop)


def test_a_loop_of_ones_own():
    run = train(clients=[own_loop(x, y) for x, y in blobs()], loss=None, rounds=12, evaluate=accuracy)
    assert run.history[-1]["accuracy"] > 0.9


class Nudge:
    """The bare contract."""

    def __init__(self, client):
        self.client, self.rounds = client, []

    def update(self, w, t):
        self.rounds.append(t)
        return torch.full_like(w, 0.01), 2.0


def test_anything_with_update_takes_part():
    nudges = [Nudge(0), Nudge(1)]
    before = net()
    run = train(clients=nudges, loss=None, rounds=3, wire=ds.Wire(compression=1, codec="f32"), eta_global=1.0,
                server_optimizer="sgd")  # fmt: skip
    assert nudges[1].rounds == [1, 2, 3]
    moved = weights(run) - torch.cat([p.detach().flatten() for p in before.parameters()])
    assert float(moved.mean()) == pytest.approx(0.03, rel=0.2)


@pytest.mark.parametrize("kind", ["tensors", "loader", "loop", "kept"])
def test_resume_is_bit_exact(tmp_path, kind):
    def clients():
        made = {
            "tensors": lambda: [ds.Client(x, y) for x, y in blobs()],
            "loader": loaders,
            "loop": lambda: [own_loop(x, y) for x, y in blobs()],
            "kept": lambda: [ds.Client(x, y, keep_optimizer=True) for x, y in blobs()],
        }
        return made[kind]()

    adam = {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01)} if kind == "kept" else {}
    whole = train(clients=clients(), rounds=7, **adam)
    stop = Stop(after=4)
    train(clients=clients(), rounds=7, out=tmp_path, checkpoint_every=2, callbacks=[stop], **adam)
    again = train(clients=clients(), rounds=7, out=tmp_path, checkpoint_every=2, resume=True, **adam)
    assert again.digest == whole.digest
    assert torch.equal(weights(again), weights(whole))
    assert [row["round"] for row in again.history] == list(range(1, 8))
    assert json.loads((tmp_path / "summary.json").read_text())["replica_digest"] == whole.digest
    assert (tmp_path / "model.safetensors").exists()


class Stop(Observer):
    def __init__(self, after):
        self.after = after

    def on_round(self, record):
        self.stop = record.round >= self.after


def test_a_kept_optimizer_is_kept_and_a_fresh_one_is_fresh():
    adam = {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01)}
    kept = train(clients=[ds.Client(x, y, keep_optimizer=True) for x, y in blobs()], **adam)
    fresh = train(clients=[ds.Client(x, y) for x, y in blobs()], **adam)
    assert not torch.equal(weights(kept), weights(fresh))
    assert int(kept.clients[0].kept["state"][0]["step"]) == 6 * 4


def test_a_folder_is_not_overwritten_and_not_resumed_by_another_run(tmp_path):
    train(out=tmp_path)
    with pytest.raises(
        RunError, match=r"already holds a run; continue it with resume=True \(--resume on the command line\)"
    ):
        train(out=tmp_path)
    with pytest.raises(RunError, match=r"other settings \(local_steps was 4, now 5\)"):
        train(out=tmp_path, resume=True, local_steps=5)
    with pytest.raises(RunError, match="local_optimizer was plain steps, now SGD"):
        train(out=tmp_path, resume=True, optimizer=lambda p: torch.optim.SGD(p, lr=0.01))


def test_a_run_goes_on_from_its_own_weights_whatever_the_model_came_with(tmp_path):
    """A program that does not fix the seed of its model makes other weights when it is started again."""
    whole = train(net(seed=0))
    train(net(seed=0), out=tmp_path, callbacks=[Stop(3)])
    resumed = train(net(seed=9), out=tmp_path, resume=True)
    assert (resumed.rounds, resumed.digest) == (6, whole.digest)
    again = train(resumed.model, out=tmp_path, resume=True)  # as the same cell of a notebook does
    assert again.digest == whole.digest


def test_callbacks_see_every_round():
    seen = []
    train(callbacks=[lambda record: seen.append(record.round)])
    assert seen == [1, 2, 3, 4, 5, 6]
    with pytest.raises(InputError, match="callback"):
        train(callbacks=[3])


def test_regression_and_multi_label():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
    line = x @ torch.linspace(-1, 1, 6)[:, None]
    run = train(
        net(out=1), [ds.Client(x[c::3], line[c::3]) for c in range(3)], loss=mse_loss, rounds=25, eta_local=0.05,
        evaluate=lambda model: {"mse": mse_loss(model(x), line)},
    )  # fmt: skip
    assert run.history[-1]["mse"] < 0.5 * float(line.square().mean())
    labels = torch.stack([line[:, 0] > 0, x[:, 0] > 0], dim=1).float()
    run = train(
        net(out=2), [ds.Client(x[c::3], labels[c::3]) for c in range(3)], loss=binary_cross_entropy_with_logits,
        rounds=25, evaluate=lambda model: {"right": ((model(x) > 0) == labels.bool()).float().mean()},
    )  # fmt: skip
    assert run.history[-1]["right"] > 0.8


def test_frozen_tied_and_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    model[3].weight = model[0].weight
    model[4].bias.requires_grad_(False)
    frozen = model[4].bias.clone()
    assert torch.equal(weights(train(model)), weights(train(_again(model))))
    assert torch.equal(model[4].bias, frozen)
    assert model[3].weight is model[0].weight


def _again(_):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    model[3].weight = model[0].weight
    model[4].bias.requires_grad_(False)
    return model


def batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_running_statistics_are_refused_or_stay_with_each_client(tmp_path):
    with pytest.raises(InputError, match="statistics"):
        train(batch_norm())
    run = train(batch_norm(), statistics="local", rounds=8, evaluate=accuracy)
    means = [client.statistics["1.running_mean"] for client in run.clients]
    assert not torch.equal(means[0], means[1])
    assert torch.equal(run.model[1].running_mean, torch.zeros(8))
    train(batch_norm(), statistics="local", rounds=8, out=tmp_path, checkpoint_every=1, callbacks=[Stop(after=3)])
    again = train(batch_norm(), statistics="local", rounds=8, out=tmp_path, resume=True)
    assert again.digest == run.digest


@pytest.mark.parametrize(
    "privacy",
    [
        ds.PerStep(clip=1.0, delta=1e-3, noise_multiplier=1.0),
        ds.SketchClip(clip=1.0, delta=1e-3, epsilon=20.0),
        ds.SketchClip(clip=1.0, delta=1e-3, noise_multiplier=1.0, unit="example"),
    ],
    ids=["per-step", "clients", "examples"],
)
def test_privacy_is_applied(privacy):
    steps = 1 if privacy.unit == "example" else 4
    run = train(privacy=privacy, local_steps=steps)
    assert run.epsilon > 0
    assert run.delta == 1e-3
    assert run.digest != train(local_steps=steps).digest
    assert run.digest != train(privacy=privacy, local_steps=steps).digest, "the noise is never seeded"


@pytest.mark.parametrize("kind", ["loader", "loop", "optimizer"])
def test_privacy_that_cannot_be_applied_is_refused(kind):
    clients = {"loader": loaders(), "loop": [own_loop(x, y) for x, y in blobs()], "optimizer": None}[kind]
    changes = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1)} if kind == "optimizer" else {}
    with pytest.raises(PrivacyError, match="SketchClip"):
        train(clients=clients, privacy=ds.PerStep(clip=1.0, delta=1e-3, noise_multiplier=1.0), **changes)
    whole = ds.SketchClip(clip=1.0, delta=1e-3, noise_multiplier=1.0)
    assert train(clients=clients, privacy=whole, **changes).epsilon > 0


X, Y = blobs(1)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": []}, "no clients"),
        ({"clients": [3]}, r"clients\[0\] is a int"),
        ({"clients": [ds.Client(X[:0], Y[:0])]}, "client 0 has no data"),
        ({"clients": [ds.Client(X, Y + 1)]}, "^client 0 has labels 1..3"),
        ({"clients": [ds.Client(X, Y), ds.Client(X, Y + 1)]}, "^client 1 has labels 1..3, .*number the labels from 0"),
        ({"clients": [ds.Client(X[:, :4], Y)]}, "does not take the examples of client 0"),
        ({"clients": [ds.Client((X * 10).long(), Y)]}, "int64"),
        ({"loss": None, "clients": [ds.Client(Rows(X, Y))]}, "needs loss"),
        ({"clients": [ds.Client(Dicts(X, Y))]}, "pairs"),
        ({"loss": lambda o, y: cross_entropy(o, y, reduction="none")}, "one number"),
        ({"loss": lambda model, batch: cross_entropy(model(batch[0]), batch[1], reduction="none")}, "one number"),
        ({"clients": [ds.Client(train=lambda model: None)], "loss": None}, "must return the weight"),
        ({"clients": [ds.Client(iter([]))]}, "weight"),
        ({"clients": [ds.Client(iter([]), weight=1)]}, "no data"),
        ({"clients": [Nudge(1)]}, "ids"),
        ({"evaluate": lambda model: 3}, "metrics by name"),
        ({"statistics": "global"}, "statistics"),
        ({"average": "local"}, "average"),
        ({"rounds": 0}, "at least 1"),
        ({"resume": True}, "out"),
        ({"model": net().double()}, "float32"),
        ({"model": "mlp"}, "torch.nn.Module"),
        ({"wire": ds.Wire(b=10**6)}, "at most d"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(changes, message):
    model = changes.pop("model", None)
    with pytest.raises((InputError, ConfigError), match=message):
        train(model, **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ds.Client(), "data"),
        (lambda: ds.Client(X, Y, train=len), "data"),
        (lambda: ds.Client(X, Y[:-1]), "one row an example"),
        (lambda: ds.Client(np.array(["a"]), Y), "numbers"),
        (lambda: ds.Client(X, Y, weight=-1), "weight"),
        (lambda: ds.Wire(family="sha"), "family"),
        (lambda: ds.Wire(codec="int2"), "codec"),
        (lambda: ds.Wire(compression=0.5), "compression"),
        (lambda: ds.SketchClip(clip=1.0, delta=1e-5), "no default"),
        (lambda: ds.PerStep(clip=0.0, delta=1e-5, epsilon=1), "clip"),
    ],
)
def test_bad_parts_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_what_holds_data_never_prints_it():
    client = ds.Client(X + 12345.0, Y)
    assert "12345" not in repr(client)
    assert repr(client) == "Client(tensors, examples=24)"
    run = train(clients=loaders())
    assert "tensor(" not in repr(run.clients[0])
    assert repr(run).startswith("Run(rounds=6")


def test_a_sketch_too_small_for_one_bit_warns():
    with pytest.warns(UserWarning, match="one-bit code is biased"):
        train(wire=ds.Wire(b=8), rounds=1)


def test_all_updates_refused_is_an_error():
    bad = [ds.Client(torch.full_like(x, 1e30), y) for x, y in blobs()]
    with pytest.raises(RunError, match="not finite"):
        train(clients=bad, rounds=2)


@pytest.mark.parametrize("evaluate", [None, lambda model: {"my_score": 0.5, "other": 1.0}], ids=["nothing", "my own"])
def test_a_run_folder_explains_itself_whatever_is_measured(tmp_path, evaluate):
    train(rounds=2, evaluate=evaluate, out=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Sequential" in page
    assert "?" not in page.split("<header>")[1].split("</header>")[0]
    assert ("my score" in page) == (evaluate is not None)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (config["clients"], config["codec"], config["dp"]) == (4, "int8", None)


def test_parameters_with_defaults_are_the_loop_s_own_and_t_is_the_round():
    seen = []

    def loop(model, x, y, t=None):
        seen.append((t, len(y)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        return len(y)

    (x, y), *_ = blobs()
    kinds = [lambda m, x=x, y=y: loop(m, x, y), lambda m, t: loop(m, x, y, t), lambda m, t=0, x=x: loop(m, x, y, t)]
    train(clients=[ds.Client(train=kind) for kind in kinds], loss=None, rounds=2)
    assert seen == [(None, 24), (1, 24), (1, 24), (None, 24), (2, 24), (2, 24)]
