"""Members that are made when they are asked for: which ones are made, and how often."""

import pytest

from desketch.core.on_demand import OnDemand, OnDemandTable, looked_at


def test_only_what_is_asked_for_is_made():
    made = []

    def make(i):
        made.append(i)
        return i * i

    squares = OnDemand(10**9, make)
    assert (len(squares), squares[7], squares[-1]) == (10**9, 49, (10**9 - 1) ** 2)
    assert squares[2:4] == [4, 9]
    assert made == [7, 10**9 - 1, 2, 3]
    assert looked_at(squares) == [0]
    assert made[4:] == [0]


def test_it_ends():
    assert list(OnDemand(3, str)) == ["0", "1", "2"]
    with pytest.raises(IndexError):
        OnDemand(3, str)[3]
    assert looked_at(OnDemand(0, str)) == []
    assert looked_at([1, 2]) == [1, 2]


def test_a_table_knows_its_clients_only():
    table = OnDemandTable(3, float)
    assert (len(table), list(table), table[2]) == (3, [0, 1, 2], 2.0)
    assert table.get(3, -1.0) == -1.0
    assert table.get(-1, -1.0) == -1.0


def test_a_number_is_computed_once_and_never_if_it_was_noted():
    asked = []
    table = OnDemandTable(10**9, lambda c: asked.append(c) or 2.0 + c)
    table.note(7, 5.0)
    assert [table[7], table[3], table[3]] == [5.0, 5.0, 5.0]
    assert asked == [3]
