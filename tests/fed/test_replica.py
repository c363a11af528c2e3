"""Absentees: missed broadcasts or a checkpoint, whichever is smaller; either way the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import RunError
from desketch.fed import OPTIMIZERS, CatchUp, Federation, Replica, ReplicaLog, make_optimizer, run

Build = Callable[..., Federation]


def _fresh(f: Federation) -> Replica:
    return Replica(f.w0, optimizer=make_optimizer("momentum"), channel=f.channel)


def test_an_absentee_catches_up_bit_for_bit_either_way(build: Build) -> None:
    f = build(codec="f32")
    run(f, rounds=9)
    few, all_of_it = _fresh(f), _fresh(f)
    few.catch_up(f.server.log.package(0, f.server.replica.checkpoint))
    all_of_it.catch_up(CatchUp(0, 9, checkpoint=f.server.replica.checkpoint()))
    run(f, rounds=12)
    for replica in (few, all_of_it):
        package = f.server.log.package(replica.version, f.server.replica.checkpoint)
        assert package.checkpoint is None
        replica.catch_up(package)
        assert replica.digest() == f.server.replica.digest()


def test_the_smaller_package_is_sent(build: Build) -> None:
    f = build(codec="f32")
    seen = set()
    for t in range(1, 45):
        run(f, rounds=t)
        package = f.server.log.package(0, f.server.replica.checkpoint)
        size = len(f.server.replica.checkpoint())
        missed = t * len(f.server.log.package(t - 1, f.server.replica.checkpoint).broadcasts[0][1])
        assert package.size <= min(size, missed) + 16  # a state's JSON numbers vary by some digits
        seen.add(package.checkpoint is None)
    assert seen == {True, False}


def test_the_log_forgets_what_a_checkpoint_replaces() -> None:
    log = ReplicaLog(d=10)
    for t in range(1, 100):
        log.append(t, b"x" * 10)
        log.package(0, lambda: b"c" * 60)
    assert len(log.package(97, lambda: b"c" * 60).broadcasts) == 2
    assert log.package(5, lambda: b"c" * 60).checkpoint is not None
    copy = ReplicaLog(d=10)
    copy.load_state_dict(unpack_tree(pack_tree(log.state_dict())))
    assert copy.package(95, lambda: b"") == log.package(95, lambda: b"")


def test_rounds_without_an_update_are_stepped_over(build: Build) -> None:
    f = build()
    run(f, rounds=2)
    f.server.step({})
    run(f, rounds=5)
    replica = _fresh(f)
    replica.catch_up(f.server.log.package(0, f.server.replica.checkpoint))
    assert (replica.version, replica.digest()) == (5, f.server.replica.digest())


def test_gaps_and_rubbish_are_refused(build: Build) -> None:
    f = build()
    run(f, rounds=4)
    with pytest.raises(RunError, match="catch up"):
        _fresh(f).apply(2, None)
    with pytest.raises(RunError, match="its version"):
        _fresh(f).catch_up(f.server.log.package(2, f.server.replica.checkpoint))
    with pytest.raises(RunError, match="cannot be read"):
        _fresh(f).catch_up(CatchUp(0, 4, checkpoint=b"\0" * 40))
    with pytest.raises(RunError, match="one model"):
        Replica(torch.zeros(3), optimizer=make_optimizer(), channel=f.channel)


def test_states_survive_packing() -> None:
    tree = {"a": [1, 2.5, None, {"b": torch.arange(3.0)}], "frames": b"abc", "none": b"", "c": {"d": "text"}}
    back = unpack_tree(pack_tree(tree))
    assert back["a"][:3] == [1, 2.5, None]
    assert torch.equal(back["a"][3]["b"], torch.arange(3.0))
    assert (back["frames"], back["none"], back["c"]) == (b"abc", b"", {"d": "text"})


def test_a_log_stays_as_small_as_a_checkpoint_where_nobody_is_ever_absent(build: Build) -> None:
    """Every client asks every round: no checkpoint is ever made, and yet old frames go, and the state stays small."""
    log, frame = ReplicaLog(d=1000), b"x" * 500
    for t in range(1, 400):
        log.append(t, frame)
        assert log.package(t - 1, lambda: pytest.fail("nobody needs a checkpoint")).broadcasts == ((t, frame),)
    assert sum(log.state_dict()["lengths"]) <= 6 * 4000 + 4096
    # an estimate before the first checkpoint, its size after it
    assert log.package(0, lambda: b"c" * 9000).checkpoint is not None
    assert 9000 - 500 < sum(log.state_dict()["lengths"]) <= 9000
    log.append(400, frame)
    assert sum(log.state_dict()["lengths"]) <= 9000


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_frame_is_dropped_that_a_checkpoint_would_not_replace(build: Build, optimizer: str) -> None:
    """The room a log has before it measured a checkpoint holds the largest one."""
    f = build(optimizer=optimizer)
    run(f, rounds=2)
    assert len(f.server.replica.checkpoint()) <= f.server.log.state_dict()["room"]


def test_what_a_replica_has_already_is_not_applied_again(build: Build) -> None:
    """A package that reaches further back than the replica, as a repeated message does."""
    f = build()
    run(f, rounds=3)
    replica, package = _fresh(f), f.server.log.package(0, f.server.replica.checkpoint)
    replica.catch_up(package)
    replica.catch_up(package)
    assert (replica.version, replica.digest()) == (3, f.server.replica.digest())


def test_a_last_round_without_an_update_counts(build: Build) -> None:
    f = build()
    run(f, rounds=2)
    f.server.step({})
    replica = _fresh(f)
    replica.catch_up(f.server.log.package(0, f.server.replica.checkpoint))
    assert replica.version == f.t == 3


def test_a_checkpoint_that_is_sent_is_packed_once():
    log, packed = ReplicaLog(d=4), []
    for t in range(1, 40):
        log.append(t, bytes(100))
    package = log.package(0, lambda: packed.append(1) or bytes(50))
    assert package.checkpoint == bytes(50)
    assert packed == [1]
