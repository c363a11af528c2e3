"""``desketch train --topology``: the same command without a server."""

from __future__ import annotations

import json

import pytest

from desketch.api.configured import train_run
from desketch.errors import ConfigError
from desketch.tasks import RunConfig

SMALL = {"model": "mlp:16", "clients": 6, "local_steps": 3, "batch_size": 16, "compression": 8}


def test_a_run_reports_graph_traffic_and_protocols(tmp_path):
    summary = train_run(RunConfig(topology="ring", rounds=3, **SMALL), out=tmp_path / "run")
    facts = summary["topology"]
    assert (facts["nodes"], len(facts["edges"]), facts["hops per round"]) == (6, 6, 6)
    assert set(facts["one average"]) == {"server", "tree", "gossip"}
    assert facts["final consensus distance"] == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["bytes_up"] + row["bytes_down"] for row in rows) == facts["bytes per node"] * 6
    assert "Who talks to whom" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.filterwarnings("ignore:round")
@pytest.mark.parametrize("protocol", ["tree", "gossip"])
def test_a_run_resumes_through_failures(tmp_path, protocol):
    shape = {"topology": "grid", "protocol": protocol, "edge_failures": 0.3, "node_failures": 0.1, **SMALL}
    whole = train_run(RunConfig(rounds=4, **shape), out=tmp_path / "whole")
    train_run(RunConfig(rounds=2, **shape), out=tmp_path / "cut")
    resumed = train_run(RunConfig(rounds=4, **shape), out=tmp_path / "cut", resume=True)
    assert resumed["replica_digest"] == whole["replica_digest"]
    assert resumed["topology"] == whole["topology"]


def test_what_needs_a_server_is_refused():
    with pytest.raises(ConfigError, match="capture"):
        RunConfig(topology="ring", capture=(1,))
    with pytest.raises(ConfigError, match="node_failures"):
        RunConfig(topology="ring", fraction=0.5)
    with pytest.raises(ConfigError, match="set topology"):
        RunConfig(edge_failures=0.1)
