"""A PyTorch app written for FedAvg, plus the lines of docs/flower.md: in this process, simulated, and deployed."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from local_grid import LocalGrid

from desketch.integrations.flower.deploy import wait_for_superlink
from desketch.integrations.flower.processes import Deployment, flower_environment, tool
from desketch.integrations.flower.project import write_flower_home

APP = Path(__file__).parent / "quickstart"
PAGE = Path(__file__).parents[3] / "docs" / "flower.md"


def changes():
    """The lines of the page's first diff, by file: (what goes, what comes); nothing goes for a new import."""
    block = re.search(r"```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
    found, file, gone = [], None, None
    for line in block.splitlines():
        if line.startswith(" # "):
            file = line.removeprefix(" # ")
        elif line.startswith("-"):
            gone = line[1:].strip()
        elif line.startswith("+"):
            found.append((file, gone, line[1:].strip()))
            gone = None
    return found


def changed_app(folder):
    """The app with those lines in it."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, gone, comes in changes():
        path = folder / "quickstart" / file
        text = path.read_text()
        old = gone or re.search(r"^(?:import|from) .*$", text, re.MULTILINE).group(0)
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, comes if gone else f"{comes}\n{old}"))
    return folder


def settings(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def check(results, rounds):
    """Client metrics of both kinds and the server's own are there for every round, and the model has learnt."""
    train, evaluate, central = (
        results[name]
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")
    )
    assert list(train) == list(evaluate) == [str(t) for t in range(1, rounds + 1)]
    assert list(central) == [str(t) for t in range(rounds + 1)]
    assert set(train["1"]) == {"train_loss"}
    assert set(evaluate["1"]) == {"eval_loss", "eval_acc"}
    assert train[str(rounds)]["train_loss"] < train["1"]["train_loss"]


def test_the_page_changes_two_files_and_four_lines():
    assert [file for file, _, _ in changes()] == ["client_app.py"] * 2 + ["server_app.py"] * 2


def test_the_changed_app_learns_and_its_metrics_travel(tmp_path, monkeypatch):
    folder = changed_app(tmp_path / "app")
    monkeypatch.syspath_prepend(str(folder))
    config = {**settings(folder), "num-server-rounds": 12, "results": str(tmp_path / "results.json")}
    client, server = (importlib.import_module(f"quickstart.{name}_app") for name in ("client", "server"))
    grid = LocalGrid({100 + c: client.app for c in range(4)}, tmp_path / "clients", run_config=config)
    try:
        server.app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config))
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
            del sys.modules[name]
    results = json.loads((tmp_path / "results.json").read_text())
    check(results, 12)
    assert results["evaluate_metrics_serverapp"]["12"]["accuracy"] > 0.9
    assert results["evaluate_metrics_clientapp"]["12"]["eval_acc"] > 0.85


def flwr_run(project, home, results, *options):
    """Submit the project and wait for what its ServerApp leaves."""
    command = [tool("flwr"), "run", str(project), "desketch", *options, "--stream"]
    command += ["--run-config", f'results="{results}"']
    done = subprocess.run(command, env=flower_environment(home), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    deadline = time.monotonic() + 60
    while not results.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert results.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(results.read_text())


@pytest.fixture
def bed(tmp_path):
    """A SuperLink of this test's own, with any options; stopped at the end."""
    with Deployment(tmp_path / "bed") as deployment:

        def start(*options):
            write_flower_home(deployment.home, f"{deployment.address}:{deployment.port}")
            deployment.start_superlink("--insecure", *options)
            wait_for_superlink(deployment)
            return deployment

        yield start


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_flwr_run_simulates_the_changed_app(tmp_path, bed):
    project, home = changed_app(tmp_path / "app"), bed("--simulation").home
    nodes = ("--federation-config", "num-supernodes=4")
    check(flwr_run(project, home, tmp_path / "results.json", *nodes), settings(project)["num-server-rounds"])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_changed_app_runs_as_a_deployment(tmp_path, bed):
    project, deployment = changed_app(tmp_path / "app"), bed()
    for client in range(2):
        deployment.start_node(client, 2)
    results = flwr_run(project, deployment.home, tmp_path / "results.json")
    check(results, settings(project)["num-server-rounds"])
    assert all((deployment.folder / f"client-{c}" / "replica.safetensors").exists() for c in range(2))
