"""Deployments on loopback whose processes can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]


@pytest.fixture
def bed(tmp_path):
    from flower_bed import Bed

    made = []

    def make(*, clients=2, rounds=4, round_timeout=300.0):
        made.append(Bed(tmp_path, clients, rounds, round_timeout))
        return made[-1]

    yield make
    for one in made:
        one.deployment.__exit__()
