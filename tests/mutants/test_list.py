"""The list of breaks still fits the code: every entry applies, compiles, and names tests that exist."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter

import pytest
from listed import PACKAGE, ROOT, BreakError, breaks

ROOMS = {"fed", "wire", "privacy", "session", "run"}


@pytest.mark.parametrize("broken", breaks(), ids=lambda broken: f"{broken.room}: {broken.name}")
def test_every_break_applies_and_its_tests_exist(broken):
    source = (PACKAGE / broken.file).read_text()
    assert ast.dump(ast.parse(broken.applied(source))) != ast.dump(ast.parse(source))
    assert broken.tests
    for test in broken.tests:
        file, *names = test.split("::")
        known = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert {name.partition("[")[0] for name in names} <= known, test


def test_the_list_is_long_and_covers_its_rooms():
    listed = breaks()
    assert len(listed) >= 60
    assert {broken.room for broken in listed} >= ROOMS
    assert [name for name, count in Counter(broken.name for broken in listed).items() if count > 1] == []


def test_an_entry_that_fits_no_more_says_so():
    broken = dataclasses.replace(breaks()[0], old="this text is nowhere")
    with pytest.raises(BreakError, match="occurs 0 times"):
        broken.applied((PACKAGE / broken.file).read_text())
