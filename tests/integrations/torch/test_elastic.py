"""Sites that come and go: three train, one dies in the middle of a round, another joins; torchft counts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from desketch import Key
from desketch.errors import ConfigError

pytest.importorskip("torchft")

WORKER = Path(__file__).with_name("elastic_worker.py")


@pytest.fixture(scope="module")
def lighthouse():
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="[::]:0", min_replicas=2, join_timeout_ms=8000, heartbeat_timeout_ms=2000)
    yield f"http://localhost:{server.address().rpartition(':')[2]}"
    server.shutdown()


def start(role, seed, lighthouse, folder, *, bell=None):
    order = json.dumps({"role": role, "seed": seed, "lighthouse": lighthouse, "bell": bell})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    said, errors = (folder / f"{role}{seed}.out").open("w"), (folder / f"{role}{seed}.err").open("w")
    with said, errors:  # files: a pipe that nobody empties would stop torchft, which logs every quorum
        return subprocess.Popen(
            [sys.executable, str(WORKER), order],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=errors,
            env=environment,
            pass_fds=() if bell is None else (bell,),
        )


def end(process, name, folder):
    """What a site reported."""
    code = process.wait(timeout=200)
    assert code == 0, (folder / f"{name}.err").read_text()[-3000:]
    return json.loads((folder / f"{name}.out").read_text().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_site_dies_in_a_round_and_another_joins(lighthouse, tmp_path):
    heard, bell = os.pipe()
    started = {f"stays{seed}": start("stays", seed, lighthouse, tmp_path, bell=bell) for seed in (1, 2)}
    os.close(bell)
    joins = started["joins4"] = start("joins", 4, lighthouse, tmp_path)
    dies = start("dies", 3, lighthouse, tmp_path)
    try:
        assert dies.wait(timeout=200) == 9, (tmp_path / "dies3.err").read_text()[-3000:]
        assert os.read(heard, 1), "no site saw a round of two"  # one that joins at once may take the dead one's place
        joins.communicate(b"now\n", timeout=200)
        outs = [end(process, name, tmp_path) for name, process in started.items()]
    finally:
        os.close(heard)
        for process in (dies, *started.values()):
            process.kill()
            process.communicate()
    a, b, c = ({t: (size, digest) for t, size, digest in out["seen"]} for out in outs)
    # every round alike on all who took part, the one in which a site died too, and no round left out
    for one in (a, b, c):
        assert sorted(one) == list(range(min(one), max(a) + 1))
        assert all(one[t] == a[t] for t in one.keys() & a.keys())
    first = min(c)
    assert (a[first - 1][0], a[first][0]) == (2, 3)
    assert len({out["w"] for out in outs}) == 1
    # rounds are counted from 0 in a reason; who comes to the very first quorum late joins too
    assert [first - 1, "it has just joined"] in [[t, why] for t, _, why in outs[0]["skipped"]]


def test_what_needs_a_fixed_world_or_a_memory_is_refused(lighthouse):
    from desketch.integrations.torch.elastic import ElasticOuter

    net = nn.Linear(20, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    given = {"lighthouse": lighthouse, "address": "localhost", "key": Key(1)}
    with pytest.raises(ConfigError, match="overlap needs a fixed world"):
        ElasticOuter(net, optimizer, overlap=True, **given)
    with pytest.raises(ConfigError, match="has a memory"):
        ElasticOuter(net, optimizer, method="sparseloco", **given)
