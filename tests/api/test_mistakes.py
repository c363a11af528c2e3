"""What a user can get wrong in a call of federate, and what the error says."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import desketch as ds
from desketch.errors import BudgetError, ConfigError, InputError, RunError

# the noise is weak on purpose: these tests look at what is refused
pytestmark = pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def parts(n=4):
    return [(torch.randn(24, 6), torch.randint(3, (24,))) for _ in range(n)]


def train(clients=None, **changes):
    settings = {"loss": nn.functional.cross_entropy, "rounds": 6, "wire": ds.Wire(compression=3, codec="int8")}
    return ds.federate(net(), clients or [ds.Client(*part) for part in parts()], **(settings | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": 2.5}, "rounds is a whole number and at least 1, got 2.5"),
        ({"rounds": 0}, "rounds is a whole number"),
        ({"local_steps": 2.5}, "local_steps is a whole number"),
        ({"evaluate_every": True}, "evaluate_every is a whole number"),
        ({"checkpoint_every": "often"}, "checkpoint_every is a whole number"),
        ({"average": 0}, "average is a whole number of rounds, at least 1, or 'all', got 0"),
        ({"average": 2.5}, "average is"),
        ({"average": "foo"}, "average is"),
        ({"seed": -1}, "seed is a whole number and not negative"),
        ({"wire": {"b": 3}}, r"wire is a desketch.Wire\(...\), got dict"),
        ({"privacy": "sketch-clip"}, "privacy is a desketch.PerStep"),
        ({"optimizer": "adamw"}, "optimizer is a function .* got str"),
        ({"optimizer": torch.optim.SGD(net().parameters(), lr=0.1)}, "optimizer is a function .* got SGD"),
        ({"server_optimizer": "sgd", "momentum": 0.2}, "sgd has no momentum, got 0.2"),
    ],
)
def test_settings_of_the_wrong_kind_are_named(changes, said):
    with pytest.raises((ConfigError, InputError), match=said):
        train(**changes)


def test_a_wire_is_made_of_numbers():
    with pytest.raises(ConfigError, match="compression is a number, got '30'"):
        ds.Wire(compression="30")
    with pytest.raises(ConfigError, match=r"b is a number, got 2\.5"):
        ds.Wire(b=2.5)


def test_out_is_no_file(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"out is a folder, got the file .*taken"):
        train(out=tmp_path / "taken")


@pytest.mark.parametrize("name", ["round", "digest", "bytes_up"])
def test_a_metric_may_not_be_called_as_a_row_calls_its_own(name, tmp_path):
    with pytest.raises(InputError, match=f"a round's row has {name} already"):
        train(out=tmp_path, evaluate=lambda model: {name: 0.5, "accuracy": 1.0})


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused(context):
    with context(), pytest.raises(InputError, match="outside of torch"):
        train()


def test_a_client_that_raises_is_named():
    def broken(module, t):
        raise OSError("the disk is gone")

    clients = [ds.Client(*part) for part in parts(2)] + [ds.Client(train=broken)]
    with pytest.raises(OSError, match="the disk is gone") as caught:
        train(clients=clients)
    assert caught.value.__notes__ == ["raised by client 2 in round 1"]


def test_examples_of_another_shape_are_found_before_training():
    odd = ds.Client(torch.randn(7, 5), torch.zeros(7, dtype=torch.long))
    with pytest.raises(InputError, match=re.escape("does not take the examples of client 4, x (2, 5) torch.float32")):
        train(clients=[*(ds.Client(*part) for part in parts()), odd])


def test_clients_may_have_examples_of_several_lengths_where_the_model_takes_them():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(1, 2)
            self.drop = nn.Dropout(0.1)  # trained one by one

        def forward(self, x):
            return self.out(self.drop(x).mean(1, keepdim=True))

    clients = [ds.Client(torch.randn(8, length), torch.randint(2, (8,))) for length in (3, 5)]
    run = ds.federate(
        Mean(), clients, loss=nn.functional.cross_entropy, rounds=2, wire=ds.Wire(compression=1, codec="f32")
    )
    assert run.rounds == 2


def test_nan_in_the_data_is_a_suspect():
    with pytest.raises(RunError, match="look for NaN in its data"):
        train(clients=[ds.Client(torch.full_like(x, torch.nan), y) for x, y in parts()])


def test_a_budget_for_no_round_is_no_result():
    privacy = ds.SketchClip(clip=1.0, delta=1e-5, noise_multiplier=1.0, epsilon=0.01, unit="client")
    with pytest.raises(BudgetError, match="epsilon"):
        train(privacy=privacy, fraction=0.5)


def test_a_report_that_fails_does_not_take_the_result_with_it(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RunError("no plot today")

    monkeypatch.setattr("desketch.report.write_report", fail)
    with pytest.warns(UserWarning, match=r"there is no report.html: no plot today"):
        run = train(out=tmp_path)
    assert run.rounds == 6
    assert isinstance(run.model, nn.Module)
    assert (tmp_path / "summary.json").exists()
