"""The small federation of these tests (``tests/fed/small_federation.py``) as fixtures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fed"))

from small_federation import blobs_fixture, build, log, perceptron_fixture

__all__ = ["blobs_fixture", "build", "log", "perceptron_fixture"]
