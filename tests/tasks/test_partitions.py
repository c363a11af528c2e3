"""Partitions: one conformance suite, then the skew each of them promises."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from desketch.errors import ConfigError
from desketch.tasks import partition, task_from_arrays

SPECS = ("iid", "dirichlet:0.5", "dirichlet:0.001", "dirichlet:1000", "shards:1", "shards:3")


@settings(max_examples=60, deadline=None)
@given(spec=st.sampled_from(SPECS), clients=st.integers(1, 12), n=st.integers(45, 80), seed=st.integers(0, 2**32 - 1))
def test_every_example_has_one_owner_and_no_client_is_empty(spec, clients, n, seed):
    task = task_from_arrays(np.zeros((n, 1)), np.arange(n) % 3, x_test=np.zeros((1, 1)), y_test=[0])
    parts = partition(task, spec, clients, seed)
    again = partition(task, spec, clients, seed)
    assert len(parts) == clients
    assert all(len(part) > 0 and torch.equal(part, other) for part, other in zip(parts, again, strict=True))
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(len(task.y_train)))


def test_skew(digits):
    def labels_per_client(spec):
        return np.mean([len(digits.y_train[part].unique()) for part in partition(digits, spec, 20, 0)])

    assert labels_per_client("shards:1") <= 2
    assert labels_per_client("shards:2") <= 4
    assert labels_per_client("dirichlet:0.05") < 5 < labels_per_client("dirichlet:0.5") < 9.5
    assert labels_per_client("iid") > 9.9
    sizes = [len(part) for part in partition(digits, "iid", 20, 0)]
    assert max(sizes) - min(sizes) <= 1


def test_column(blobs):
    parts = partition(blobs, "column:owner", 9, 0)
    assert [len(part) for part in parts] == [10] * 9
    with pytest.raises(ConfigError, match="9 values, so there are 9 clients, not 20"):
        partition(blobs, "column:owner", 20, 0)
    with pytest.raises(ConfigError, match=r"no column 'site'.*owner"):
        partition(blobs, "column:site", 9, 0)


@pytest.mark.parametrize(
    ("spec", "clients", "reason"),
    [
        ("halves", 2, "unknown partition"),
        ("iid:3", 2, "unknown partition"),
        ("dirichlet", 2, "unknown partition"),
        ("dirichlet:x", 2, "needs a number"),
        ("dirichlet:-1", 2, "number >= 0.001"),
        ("dirichlet:nan", 2, "number >= 0.001"),
        ("shards:1.5", 2, "whole number"),
        ("shards:50", 2, "exceed"),
        ("iid", 0, "cannot be dealt out"),
        ("iid", 91, "choose 1 to 90 clients"),
    ],
)
def test_bad_requests_are_refused(blobs, spec, clients, reason):
    with pytest.raises(ConfigError, match=reason):
        partition(blobs, spec, clients, 0)
