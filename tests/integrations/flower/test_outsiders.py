"""A real secure deployment trains while outsiders knock: all of them are refused, by name, in the front's log."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import time

import pytest

from desketch.integrations.flower import deploy, front
from desketch.integrations.flower.credentials import make_node_key
from desketch.integrations.flower.deploy import DeploymentPlan
from desketch.integrations.flower.enrol import read_enrolled
from desketch.integrations.flower.processes import Deployment, flower_environment, free_port, tool
from desketch.integrations.flower.project import write_flower_home, write_project
from desketch.tasks.config import RunConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def rogue(tmp_path):
    """What an outsider has: the public authority, a key pair of its own, and an app to run."""
    folder = tmp_path / "rogue"

    def equip(plan):
        make_node_key(folder, "rogue")
        shutil.copy(plan.keys / "ca.pem", folder)
        write_flower_home(folder / "flwr", f"{plan.host}:{plan.port}", folder / "ca.pem")
        write_project(folder / "project", plan.config)
        return folder

    return equip


def flwr(folder, *command):
    done = subprocess.run(
        [tool("flwr"), *command], env=flower_environment(folder / "flwr"), capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def knock(deployment, plan, name, key, certificate, expected):
    """A SuperNode with this key, through a tunnel if it has a certificate, until the front refused it as expected."""
    command = [tool("flower-supernode"), "--auth-supernode-private-key", str(key)]
    command += ["--port", str(free_port()), "--node-config", "partition-id=0"]
    authority, to = str(plan.keys / "ca.pem"), f"{plan.host}:{plan.port}"
    if certificate is None:
        command += ["--superlink", to, "--root-certificates", authority]
    else:
        options = ["--to", to, "--authority", authority, "--certificate", str(certificate), "--"]
        command = [sys.executable, "-m", "desketch.integrations.flower.tunnel", *options, *command]
    deployment.start(name, command)
    until_refused(plan, expected)
    deployment.stop(name)


def until_refused(plan, expected):
    deadline = time.monotonic() + 120
    while not any(re.search(expected, line) for line in front.refusals(plan.front)):
        assert time.monotonic() < deadline, (expected, front.refusals(plan.front))
        time.sleep(0.1)


def test_outsiders_are_refused_by_name_while_the_listed_train(tmp_path, nginx, rogue):
    config = RunConfig(clients=2, rounds=2, model="mlp:16", evaluate_every=1)
    plan = DeploymentPlan(folder=tmp_path / "run", config=config, port=free_port(), behind=free_port(), secure=True)
    plan.write()
    outside = rogue(plan)
    with Deployment(plan.folder.resolve(), *plan.superlink) as deployment:
        deploy.start(deployment, plan)
        enrolled = read_enrolled(plan.folder / "nodes.json")
        assert sorted(enrolled.values()) == [0, 1]

        stranger, other = "no certificate of a listed node", "the node key is not that of the certificate"
        code, text = flwr(outside, "supernode", "register", str(outside / "rogue.pub"), "desketch")
        assert code != 0, text
        until_refused(plan, rf'\(NONE\) .*"POST /v1/control/register-node .*refused="{stranger}"')
        code, text = flwr(outside, "run", str(outside / "project"), "desketch")
        assert code != 0, text
        until_refused(plan, rf'\(NONE\) .*"POST /v1/control/start-run .*refused="{stranger}"')
        own, stolen, lent = outside / "rogue.key", plan.keys / "node-0.key", plan.keys / "node-1.crt"
        for name, key, certificate, expected in (
            ("no certificate", own, None, rf'\(NONE\) key="nobody" "POST /v1/fleet/.*refused="{stranger}"'),
            ("only a key", stolen, None, rf'\(NONE\) key="node-0" "POST /v1/fleet/.*refused="{stranger}"'),
            ("only a certificate", own, lent, rf'"CN=node-1" \(SUCCESS\) key="nobody" .*refused="{other}"'),
            ("of two nodes", stolen, lent, rf'"CN=node-1" \(SUCCESS\) key="node-0" .*refused="{other}"'),
        ):
            knock(deployment, plan, name, key, certificate, expected)

        code, text = flwr(plan.folder, "supernode", "list", "desketch", "--format", "json")
        assert code == 0, text
        known = {int(one["node-id"]) for one in json.loads(text[text.index("{") :])["nodes"]}
        assert known == set(enrolled)  # nobody else was registered

        deployment.start_run(plan.project.resolve())
        rows = list(deployment.follow("run", plan.folder / "server" / "metrics.jsonl", minutes=8))
        assert [row["clients"] for row in rows] == [[0, 1]] * 2
        assert not any(row["refused"] for row in rows)
    for name in ("superlink.db", "server", "nodes.json", "server/checkpoint"):
        assert stat.S_IMODE((plan.folder / name).stat().st_mode) & 0o077 == 0, name
