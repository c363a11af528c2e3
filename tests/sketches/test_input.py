"""Bad input is refused with a message that says what to do; shapes and options are fuzzed."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import desketch
from desketch.errors import SketchError

KEY = desketch.Key(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "fourier"}, "unknown sketch family 'fourier'; choose one of gaussian"),
        ({"b": 11}, "1 <= b <= d"),
        ({"b": 0}, "1 <= b <= d"),
        ({"b": -3}, "1 <= b <= d"),
        ({"d": -10, "b": -20}, "1 <= b <= d"),
        ({"d": 2**31 + 1}, "d <= 2^31"),
        ({"d": 10.5}, "d must be an integer"),
        ({"b": True}, "b must be an integer"),
        ({"b": "5"}, "b must be an integer"),
        ({"key": 3}, "use Key(seed)"),
        ({"nnz": 4}, "countsketch has no option nnz; its options: layout"),
        ({"layout": "diagonal"}, "layout must be one of block, textbook"),
        ({"name": "sparse1", "nnz": 6}, "nnz must be between 1 and b=5"),
        ({"name": "sparse2", "nnz": 0}, "nnz must be between 1 and b=5"),
        ({"name": "sparse2", "nnz": 1.5}, "nnz must be an integer"),
        ({"name": "srht", "block": 12}, "block must be a power of two, got 12; try 16"),
        ({"name": "srht", "block": -4}, "block must be a power of two"),
        ({"name": "srht", "transform": "cosine"}, "transform must be one of hadamard, fourier, got 'cosine'"),
        ({"name": "srht", "transform": "fourier", "block": 4}, "block=4 splits Hadamard transforms only; leave it out"),
        ({"name": "gaussian", "layout": "block"}, "gaussian has no option layout; its options: none"),
    ],
)
def test_bad_sketches_are_refused(arguments, message):
    call = {"name": "countsketch", "d": 10, "b": 5, "key": KEY, **arguments}
    with pytest.raises(SketchError, match=re.escape(message)):
        desketch.draw(call.pop("name"), **call)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(9), "must have 10 numbers"),
        (np.zeros((10, 2)), "must have 10 numbers"),
        (np.zeros(()), "must have 10 numbers"),
        (np.zeros(10, dtype=int), "float32 or float64, got int64"),
        (np.zeros(10, dtype=np.float16), "float32 or float64, got float16"),
        (torch.zeros(10, dtype=torch.int32), "float32 or float64, got torch.int32"),
        (torch.zeros(11), "must have 10 numbers"),
        ([0.0] * 10, "torch tensor or a NumPy array, got list"),
    ],
)
def test_bad_vectors_are_refused(path, x, message):
    R = desketch.draw("countsketch", d=10, b=5, key=KEY)
    with pytest.raises(SketchError, match=re.escape(message)):
        R.sketch(x)


def test_desketch_add_checks_both(path):
    R = desketch.draw("countsketch", d=10, b=5, key=KEY)
    for w, s in (
        (np.zeros(10), np.zeros(5, "f4")),
        (np.zeros((2, 10)), np.zeros(5)),
        (np.zeros(10), torch.zeros(5)),
        (np.zeros(9), np.zeros(5)),
    ):
        with pytest.raises(SketchError):
            R.desketch_add_(w, s)


def test_environment_is_checked(monkeypatch):
    for name, value in (("DESKETCH_KERNELS", "fast"), ("DESKETCH_THREADS", "zero"), ("DESKETCH_THREADS", "0")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(SketchError, match=name):
                desketch.draw("uniform", d=10, b=5, key=KEY)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.data())
def test_any_shape_and_option(data):
    d = data.draw(st.integers(1, 700))
    b = data.draw(st.integers(1, d))
    name = data.draw(st.sampled_from(desketch.FAMILIES))
    options = {}
    if name in ("countsketch", "sparse1", "sparse2"):
        options["layout"] = data.draw(st.sampled_from(["block", "textbook"]))
    if name in ("sparse1", "sparse2"):
        options["nnz"] = data.draw(st.integers(1, min(b, 9)))
    if name == "srht":
        options["transform"] = data.draw(st.sampled_from(["hadamard", "fourier"]))
        blocks = [None, 1, 2, 64, 1024] if options["transform"] == "hadamard" else [None]
        options["block"] = data.draw(st.sampled_from(blocks))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    batch = data.draw(st.lists(st.integers(0, 3), max_size=2))
    R = desketch.draw(name, d=d, b=b, key=desketch.Key(data.draw(st.integers(0, 2**70))), **options)
    rng = np.random.default_rng(0)
    g, s = rng.standard_normal((*batch, d)).astype(dtype), rng.standard_normal((*batch, b)).astype(dtype)
    y, x = R.sketch(g), R.desketch(s)
    assert (y.shape, x.shape, y.dtype, x.dtype) == ((*batch, b), (*batch, d), dtype, dtype)
    left, right = (y.astype("f8") * s).sum(-1), (g * x.astype("f8")).sum(-1)
    np.testing.assert_allclose(left, right, atol=1e-5 * d if dtype == "float32" else 1e-10 * d)
    assert 0 <= R.alpha <= R.alpha_paper or d == 1 or b == d


def test_a_view_that_torch_negates_on_reading_is_sketched_as_it_reads():
    x = torch.complex(torch.zeros(300), torch.arange(300.0)).conj().imag
    assert x.is_neg()
    R = desketch.draw("countsketch", d=300, b=64, key=desketch.Key(1))
    torch.testing.assert_close(R.sketch(x), -R.sketch(torch.arange(300.0)), rtol=0, atol=0)
