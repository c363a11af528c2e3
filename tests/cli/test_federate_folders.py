"""A folder of ds.federate is a run folder that no command can build a task and a model from: it says so."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

import desketch as ds
from desketch.cli.audit import app as audit_app
from desketch.cli.plan import app as plan_app
from desketch.cli.train import app as train_app
from desketch.errors import ConfigError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    path = tmp_path_factory.mktemp("federate") / "mine"
    ds.federate(
        torch.nn.Linear(3, 1),
        [ds.Client(x[c::2], y[c::2]) for c in range(2)],
        loss=torch.nn.functional.mse_loss,
        rounds=1,
        wire=ds.Wire(compression=1, codec="f32"),
        out=path,
    )
    return path


@pytest.mark.parametrize(
    ("app", "flags", "instead"),
    [
        (plan_app, ["--from-run"], "--smoothness"),
        (audit_app, ["--from-run"], "--model module:function"),
        (train_app, ["--resume", "--out"], "resume=True"),
    ],
)
def test_it_is_told_apart_with_what_to_do_instead(folder, app, flags, instead):
    result = CliRunner().invoke(app, [*flags, str(folder)])
    assert isinstance(result.exception, ConfigError)
    text = str(result.exception)
    assert text.startswith(f"{folder} was written by ds.federate")
    assert "desketch train" in text
    assert instead in text
