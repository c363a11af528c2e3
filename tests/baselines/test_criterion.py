from __future__ import annotations

import pytest

from desketch.baselines.criterion import Point, reach_and_hold
from desketch.errors import InputError


def curve(*accuracies: float) -> list[Point]:
    return [Point(round=5 * i, value=a, bytes_up=100.0 * i, bytes_down=50.0 * i) for i, a in enumerate(accuracies)]


def test_a_lucky_crossing_is_not_charged():
    points = curve(0.1, 0.85, 0.70, 0.71, 0.85, 0.86, 0.80, 0.87, 0.88)
    reached = reach_and_hold(points, 0.84)
    assert reached is not None
    assert (reached.round, reached.bytes) == (20, 600.0)


def test_a_target_touched_at_the_end_is_not_held():
    assert reach_and_hold(curve(0.1, 0.2, 0.85, 0.85, 0.85), 0.84) is None
    assert reach_and_hold([], 0.84) is None


def test_one_bad_evaluation_of_three_is_forgiven():
    reached = reach_and_hold(curve(0.84, 0.84, 0.0, 0.84), 0.84)
    assert reached is not None
    assert reached.round == 0


def test_hold_must_be_positive():
    with pytest.raises(InputError, match="hold"):
        reach_and_hold(curve(1.0), 0.5, hold=0)
