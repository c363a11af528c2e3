"""Make the protocol tests' parties and the local grid importable."""

import sys
from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity

from desketch.errors import RunError
from desketch.integrations.flower import front

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "session")]


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Messages are stamped with the task they belong to."""
    for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


@pytest.fixture
def nginx():
    """The path of nginx; tests that need it skip where it is missing."""
    try:
        return front.nginx()
    except RunError as error:
        pytest.skip(f"run tests/integrations/flower/install_nginx.sh as root: {error}")
