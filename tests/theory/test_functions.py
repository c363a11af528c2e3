"""The function table: agrees with calculus, and with the paper but for the entries named here."""

import math

import pytest

from desketch.theory.falsifier import PROPERTIES, Profile, rule
from desketch.theory.functions import function_table

# (function, domain, property): printed wrongly, and why
DIFFERENCES = {
    ("ln(1 + e^t)", "|t| ≤ 1", "semi-strongly convex"),  # second derivative >= 0.19 there
    ("t² sin(1/t)", "|t| ≤ 1, t ≠ 0", "semi-smooth"),  # curvature 2/t at the zeros of sin(1/t)
    ("t² sin(1/t)", "", "semi-smooth"),
    ("t² sin(1/t)", "|t| ≤ 1, t ≠ 0", "non-critical point"),  # negative values, critical points between the zeros
    ("cosh t", "|t| ≤ 1", "semi-smooth"),  # second derivative <= cosh 1
    ("cosh t", "|t| ≤ 1", "semi-Lipschitz gradient"),
    ("cosh t", "|t| ≤ 1", "non-critical point"),  # critical at 0, where it is 1
    ("tanh(t)", "", "semi-smooth"),  # second derivative <= 0.77
    ("tanh(t)", "", "semi-Lipschitz gradient"),
}


def test_verdicts_differ_from_the_paper_exactly_where_stated():
    found = {
        (row.function, row.domain, name)
        for row in function_table()
        for name, verdict in row.verdicts.items()
        if verdict.paper != verdict.ours
    }
    assert found == DIFFERENCES


def test_semi_lipschitz_gradient_implies_semi_smooth():
    for row in function_table():
        verdicts = row.verdicts
        assert not verdicts["semi-Lipschitz gradient"].ours or verdicts["semi-smooth"].ours


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (Profile(lambda t: t**4, lambda t: 4 * t**3), (False, False, False, False)),
        (Profile(lambda t: 3 * t * t, lambda t: 6 * t), (True, True, True, True)),
        (Profile(math.sin, math.cos), (True, True, False, False)),
        (Profile(lambda t: 1 + t * t, lambda t: 2 * t), (True, True, True, False)),
        (Profile(abs, lambda t: math.copysign(1.0, t)), (False, False, False, False)),
    ],
    ids=["quartic", "quadratic", "sine", "lifted quadratic", "absolute value"],
)
def test_known_functions_outside_the_table(profile, expected):
    assert tuple(ruling.holds for ruling in rule(profile).values()) == expected
    assert len(PROPERTIES) == 4
