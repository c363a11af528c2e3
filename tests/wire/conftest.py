import pytest

from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header


@pytest.fixture
def make_header():
    """A header with defaults for everything; keyword arguments override."""

    def make(**fields):
        defaults = {"run": 0xC0FFEE, "round": 3, "family": "srht", "d": 51_000, "b": 700, "key": Key(1), "codec": "f32"}
        return Header(**defaults | fields)

    return make


@pytest.fixture(params=CODEC_TABLE)
def codec(request):
    return request.param
