"""Flower's simulation leaves what the in-process engine leaves: files, rows, summary, model, under the same run id."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from local_grid import LocalGrid

from desketch.api import configured
from desketch.core.rows import read_rows
from desketch.integrations.flower import simulation
from desketch.integrations.flower.carrier import GridCarrier
from desketch.session.client import ClientSession, MemoryStore
from desketch.session.protocol import Order
from desketch.tasks import RunConfig, prepare
from desketch.tasks.parties import configured_rounds, server_session
from desketch.wire import peek

SETTINGS = {"task": "digits", "model": "mlp:32", "clients": 4, "fraction": 0.5, "rounds": 4, "codec": "int4"}
OWN = {"bytes_up", "bytes_down", "seconds"}  # what a carrier adds


def carried(folder):
    """`simulate` with a grid in this process in place of Ray: the same apps and sessions, message by message."""

    def simulate(setup, session, stores, *, observer=None):
        app = simulation._client(setup.config.model_dump_json(), str(stores.folder))
        grid = LocalGrid({100 + c: app for c in range(setup.config.clients)}, folder)
        carrier = GridCarrier(grid, session)
        rounds = configured_rounds(setup, session, carrier, nodes=setup.config.clients, observer=observer)
        rounds.run(setup.config.rounds)

    return simulate


def files(folder):
    return {path.name for path in folder.iterdir()}


def rows(folder):
    return read_rows(folder / "metrics.jsonl").rows


def same_outcome(ours, theirs, summary, other):
    """Equal but for the bytes and seconds of the carrier."""
    assert files(ours) == files(theirs)
    assert [list(row) for row in rows(ours)] == [list(row) for row in rows(theirs)]
    for mine, its in zip(rows(ours), rows(theirs), strict=True):
        assert {k: v for k, v in mine.items() if k not in OWN} == {k: v for k, v in its.items() if k not in OWN}
    assert list(summary) == list(other)
    for name in ("test_accuracy", "test_loss", "val_accuracy", "replica_digest", "rounds", "stopped_by", "epsilon"):
        assert summary[name] == other[name], name
    assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()


@pytest.mark.parametrize("more", [{}, {"average": "all", "capture": (2,), "evaluate_every": 3}], ids=["plain", "more"])
def test_the_engines_leave_the_same_folder(tmp_path, monkeypatch, more):
    monkeypatch.setattr(simulation, "simulate", carried(tmp_path / "states"))
    settings = {**SETTINGS, **more}
    summaries = [
        configured.train_run(RunConfig(**settings, engine=engine), out=tmp_path / engine)
        for engine in ("flower-sim", "in-process")
    ]
    same_outcome(tmp_path / "flower-sim", tmp_path / "in-process", *summaries)


@pytest.mark.parametrize("more", [{}, {"fraction": 1.0, "local_steps": 2}], ids=["plain", "client momentum"])
def test_a_simulation_that_was_cut_resumes_to_the_same_end(tmp_path, monkeypatch, more):
    """Ray's clients lose what they kept at home: replicas are sent again, running means are in the checkpoint."""
    monkeypatch.setattr(simulation, "simulate", carried(tmp_path / "states"))
    settings = {**SETTINGS, **more, "engine": "flower-sim"}
    assert bool(more) == (RunConfig(**settings).client_beta() > 0)
    whole = configured.train_run(RunConfig(**settings), out=tmp_path / "whole")
    configured.train_run(RunConfig(**{**settings, "rounds": 2}), out=tmp_path / "cut")
    again = configured.train_run(RunConfig(**settings), out=tmp_path / "cut", resume=True)
    assert again["replica_digest"] == whole["replica_digest"]
    assert again["test_loss"] == whole["test_loss"]
    assert [row["round"] for row in rows(tmp_path / "cut")] == [1, 2, 3, 4]


@pytest.mark.parametrize("changes", [{}, {"seed": 3}, {"compression": 10.0}, {"family": "countsketch", "codec": "f16"}])
def test_one_configuration_has_one_run_id_on_every_engine(changes):
    """In process, in the server's orders and in a client's frames over a session."""
    setup = prepare(RunConfig(**{**SETTINGS, **changes}))
    here = setup.federation().channel.run
    session = server_session(setup)
    order = session.order(100)
    trainer = simulation._trainer(setup.config.model_dump_json(), 0)
    reply = ClientSession(0, trainer, MemoryStore()).answer(order)
    assert {Order.unpack(order).run, peek(reply).run, session.server.replica.channel.run} == {here}
    other = prepare(RunConfig(**{**SETTINGS, **changes, "eta_local": 0.3}))
    assert other.federation().channel.run != here


def test_the_mesh_and_other_devices_and_lengths_keep_the_rule():
    base = prepare(RunConfig(**SETTINGS)).agreement().run
    assert prepare(RunConfig(**{**SETTINGS, "rounds": 9, "engine": "flower-sim"})).agreement().run == base
    mesh = prepare(RunConfig(task="digits", model="softmax", clients=4, topology="ring"))
    assert mesh.mesh().channel.run == mesh.agreement().run


def test_what_a_simulation_cannot_do_is_refused():
    setup = prepare(RunConfig(**SETTINGS, engine="flower-sim", dropout=0.1))
    with pytest.raises(configured.ConfigError, match="leave out topology, dropout and straggler"):
        configured._simulated(setup)


@pytest.mark.slow
def test_the_real_simulation_leaves_the_folder_of_the_in_process_engine(tmp_path):
    flags = [f"--{name}={value}" for name, value in SETTINGS.items()]
    out = str(tmp_path / "sim")
    command = [sys.executable, "-m", "desketch", "train", "--engine", "flower-sim", "--out", out, *flags]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = configured.train_run(RunConfig(**SETTINGS), out=tmp_path / "alone")
    same_outcome(tmp_path / "sim", tmp_path / "alone", json.loads(done.stdout), alone)
