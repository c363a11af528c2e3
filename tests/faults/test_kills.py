"""Real processes, really killed: training ends, nothing is lost or counted twice, live replicas are the server's."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.timeout(1500)  # a minute on an idle machine


def _in_mid_round(bed):
    """Two clients, three rounds; client 0 is held in the second round's local steps."""
    run = bed(clients=2, rounds=3)
    run.start()
    run.until_round(1)
    run.until_training(0)
    return run


def test_a_worker_and_a_machine_die_in_mid_round(bed):
    run = _in_mid_round(bed)
    run.kill_worker(0)  # the ClientApp that waits for it starts another, which finds the replica on disk
    run.until_round(2)
    run.until_training(1)
    run.kill_machine(1)
    run.start_node(1)  # comes back under a new node id, into the round that is still open
    assert run.finish() == [(0, 1)] * 3


@pytest.mark.slow
def test_a_superlink_killed_in_mid_round_and_the_run_resumed(bed):
    run = _in_mid_round(bed)
    run.deployment.stop("superlink", signal.SIGKILL)  # and the ServerApp with it: Flower gives such a run up
    run.deployment.stop("run", signal.SIGKILL)
    os.kill(run.worker(0), signal.SIGCONT)
    run.start_superlink()
    run.start_run()  # the same command again resumes from the last complete round
    assert run.finish() == [(0, 1)] * 3


@pytest.mark.slow
def test_a_client_app_killed_in_mid_round_is_asked_again(bed):
    run = _in_mid_round(bed)
    os.kill(run.client_app(0), signal.SIGKILL)  # its SuperNode notices within a minute
    os.kill(run.worker(0), signal.SIGCONT)
    assert run.finish() == [(0, 1)] * 3


@pytest.mark.slow
def test_rounds_go_on_without_a_machine_and_with_it_when_it_is_back(bed):
    run = bed(clients=2, rounds=6, round_timeout=150.0)
    run.start()
    run.until_round(1)
    run.until_training(1)
    run.kill_machine(1)
    run.until_round(3)  # Flower takes a minute to notice, and the next round waits once for the node that is missing
    run.until_training(0)  # holds a round open
    run.start_node(1)
    run.until(lambda: run.has_order(1), "an order for the client that is back")
    os.kill(run.worker(0), signal.SIGCONT)
    participants = run.finish()
    assert participants[1:3] == [(0,), (0,)]
    assert participants[-1] == (0, 1)


@pytest.mark.slow
def test_a_worker_killed_in_every_round(bed):
    run = bed(clients=2, rounds=5)
    run.start()
    for t in range(1, 5):
        run.until_round(t)
        run.kill_worker(t % 2)
    assert run.finish() == [(0, 1)] * 5
