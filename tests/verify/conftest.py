import pytest

from desketch.keys import Key
from desketch.theory.embedding import FAMILIES
from desketch.verify.simulate import draw_sketches

D, B = 12, 4


@pytest.fixture(scope="session")
def draws():
    return draw_sketches(FAMILIES, d=D, b=B, seeds=12, rounds=50, key=Key(7).fold_in("verify tests"))
