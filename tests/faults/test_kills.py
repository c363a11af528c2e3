"""Real processes, really killed: training ends, nothing is lost or counted twice, live replicas are the server's."""

from __future__ import annotations

import signal

import pytest


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_superlink(bench):
    run = bench(clients=2, rounds=4)
    run.start()
    run.until(1)
    run.kill_worker(0)  # the client's process dies; its next message starts another, which finds the replica on disk
    run.until(2)
    run.deployment.stop("superlink", signal.SIGKILL)  # Flower gives the run up; a new one resumes from our checkpoint
    run.deployment.stop("run", signal.SIGKILL)
    run.start_server()
    run.deployment.start_run(run.plan.project)
    run.until_end()
    run.check_end()


@pytest.mark.slow
def test_a_supernode_killed_in_mid_round_and_started_again(bench):
    run = bench(clients=3, rounds=10, round_timeout=30.0)
    run.start()
    run.until(2)
    run.deployment.stop("node 1", signal.SIGKILL)
    run.until(4)  # the rounds go on without it
    run.deployment.start_node(1, 3)
    run.until_end(900)
    run.check_end()
    assert 1 in run.rows()[-1]["participants"]
    assert any(1 not in row["participants"] for row in run.rows())


@pytest.mark.slow
def test_every_worker_killed_in_every_round(bench):
    run = bench(clients=3, rounds=6)
    run.start()
    for t in range(1, 6):
        run.until(t)
        run.kill_worker(t % 3)
    run.until_end(900)
    run.check_end()
