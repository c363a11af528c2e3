"""A long result is written to memory that an earlier one has left: the same numbers, without its page faults."""

import numpy as np
import pytest
import torch

from desketch import Key, draw
from desketch.core import compiled

pytestmark = pytest.mark.skipif(not compiled.available(), reason="the extension is not built")
D = compiled.LONG // 4 + 4096


def test_memory_is_used_again_and_never_shared():
    R = draw("countsketch", d=D, b=100, key=Key(1))
    s, z = np.ones(100, np.float32), np.zeros(100, np.float32)
    first = R.desketch(s)
    second = R.desketch(z)
    expected, place = first.copy(), first.ctypes.data
    assert not second.any()
    assert place != second.ctypes.data
    del first
    third = R.desketch(torch.from_numpy(s))
    assert third.data_ptr() == place
    np.testing.assert_array_equal(third.numpy(), expected)
    assert not second.any()


def test_a_view_keeps_the_memory_it_looks_at():
    R = draw("uniform", d=D, b=100, key=Key(1))
    part = R.desketch(torch.ones(100))[:1000]
    expected = part.clone()
    for _ in range(5):
        R.desketch(torch.full((100,), 7.0))
    assert torch.equal(part, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_results_have_shape_and_kind(dtype):
    R = draw("srht", d=D, b=10, key=Key(1))
    s = np.random.default_rng(0).standard_normal((2, 10)).astype(dtype)
    assert (R.desketch(s).shape, R.desketch(s).dtype) == ((2, D), dtype)
    np.testing.assert_array_equal(R.desketch(torch.from_numpy(s)).numpy(), R.desketch(s))
    np.testing.assert_array_equal(R.desketch(s), R.desketch(s, out=np.empty((2, D), dtype)))


def test_only_so_much_is_kept():
    blocks = [compiled.empty((n << 20,), np.uint8) for n in (1, 200, 100, 3, 5, 7, 9, 11)]
    places = {len(block): block.ctypes.data for block in blocks}
    for block in blocks:
        block[:1] = 1
    del blocks, block
    again = compiled.empty((11 << 20,), np.uint8)
    assert again.ctypes.data == places[11 << 20]
