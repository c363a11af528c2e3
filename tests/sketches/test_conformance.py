"""What every drawn R must satisfy, on both paths: adjointness, linearity, batches, dtypes, determinism."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch

import desketch

SHAPES = [(1, 1), (2, 1), (2, 2), (63, 7), (64, 64), (65, 64), (200, 67), (777, 200), (5000, 70)]


@pytest.mark.parametrize(("d", "b"), SHAPES)
def test_adjoint_linear_and_equal_to_its_dense_matrix(sketch_of, numbers, d, b):
    R = sketch_of(d, b)
    g, h, s = numbers((3, d)), numbers((3, d)), numbers((3, b))
    np.testing.assert_allclose((R.sketch(g) * s).sum(-1), (g * R.desketch(s)).sum(-1), rtol=1e-11, atol=1e-11 * d)
    np.testing.assert_allclose(R.sketch(2 * g - h), 2 * R.sketch(g) - R.sketch(h), atol=1e-11 * d)
    dense = R.to_dense()
    assert dense.shape == (b, d)
    np.testing.assert_allclose(R.sketch(g), g @ dense.T, atol=1e-11 * d)
    if d < 1000:
        np.testing.assert_allclose(R.sketch(np.eye(d)).T, dense, atol=1e-12)


def test_a_million_and_three(sketch_of, numbers):
    d, b = 1_000_003, 1009
    R = sketch_of(d, b)
    if R.family in ("gaussian", "ams"):
        d, b = 100_003, 5
        R = sketch_of(d, b)
    g, s = numbers(d), numbers(b)
    assert np.dot(R.sketch(g), s) == pytest.approx(np.dot(g, R.desketch(s)), rel=1e-9, abs=1e-7)


def test_batches_are_rows(sketch_of, numbers):
    R = sketch_of(1000, 130)
    g, s = numbers((2, 3, 1000)), numbers((2, 3, 130))
    assert R.sketch(g).shape == (2, 3, 130)
    assert R.desketch(s).shape == (2, 3, 1000)
    np.testing.assert_allclose(R.sketch(g)[1, 2], R.sketch(g[1, 2]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(R.desketch(s)[1, 2], R.desketch(s[1, 2]), rtol=1e-12, atol=1e-12)
    assert R.sketch(np.empty((0, 1000))).shape == (0, 130)
    np.testing.assert_allclose(
        R.sketch(g.transpose(1, 0, 2)[:, ::-1]), R.sketch(g)[::-1].transpose(1, 0, 2), atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_and_numpy_agree_and_keep_their_kind(sketch_of, numbers, dtype):
    R = sketch_of(1000, 130)
    g, s = numbers((2, 1000)).astype(dtype), numbers((2, 130)).astype(dtype)
    for call, x in ((R.sketch, g), (R.desketch, s)):
        out, tensor = call(x), call(torch.from_numpy(x))
        assert isinstance(out, np.ndarray)
        assert isinstance(tensor, torch.Tensor)
        assert out.dtype == dtype
        np.testing.assert_array_equal(tensor.numpy(), out)


def test_float32_agrees_with_float64(sketch_of, numbers):
    R = sketch_of(5000, 100)
    g, s = numbers(5000), numbers(100)
    np.testing.assert_allclose(R.sketch(g.astype("f4")), R.sketch(g), atol=2e-6 * np.linalg.norm(R.sketch(g)))
    np.testing.assert_allclose(R.desketch(s.astype("f4")), R.desketch(s), atol=2e-6 * np.linalg.norm(s) * 4)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_desketch_add_is_in_place(sketch_of, numbers, kind):
    R = sketch_of(1000, 130)
    w, s = numbers((2, 1000)), numbers((2, 130))
    expected = w + 0.25 * R.desketch(s)
    target = kind(w.copy())
    assert R.desketch_add_(target, kind(s), 0.25) is target
    np.testing.assert_allclose(np.asarray(target), expected, atol=1e-12)
    reused = kind(np.full((2, 1000), np.nan))
    assert R.desketch(kind(s), out=reused) is reused
    np.testing.assert_array_equal(np.asarray(reused), R.desketch(s))
    strided = np.zeros((1000, 2)).T
    R.desketch_add_(strided, s)
    np.testing.assert_allclose(strided, R.desketch(s), atol=1e-12)


def test_same_key_same_bits_other_key_other_matrix(sketch_of, numbers):
    g = numbers(777)
    first = sketch_of(777, 100, 1)
    np.testing.assert_array_equal(first.sketch(g), sketch_of(777, 100, 1).sketch(g))
    np.testing.assert_array_equal(first.sketch(g), pickle.loads(pickle.dumps(first)).sketch(g))
    assert not np.array_equal(first.sketch(g), sketch_of(777, 100, 2).sketch(g))
    assert first == sketch_of(777, 100, 1)
    assert first != sketch_of(777, 100, 2)


def test_structure_of_the_definitions(case, sketch_of):
    d, b = 700, 200
    R = sketch_of(d, b)
    dense = R.to_dense()
    nonzero = (dense != 0).sum(axis=0)
    nnz = case[1].get("nnz", 1)
    if R.family in ("countsketch", "sparse1", "sparse2"):
        assert set(nonzero) == {nnz}
        np.testing.assert_allclose((dense**2).sum(axis=0), 1, rtol=1e-12)
    if R.family == "sparse2":
        edges = [j * b // nnz for j in range(nnz + 1)]
        for lo, hi in pairwise(edges):
            assert set((dense[lo:hi] != 0).sum(axis=0)) == {1}
            np.testing.assert_allclose(np.abs(dense[lo:hi]).sum(axis=0), np.sqrt((hi - lo) / b), rtol=1e-12)
    if R.family == "uniform":
        assert set((dense != 0).sum(axis=1)) == {1}
        assert nonzero.max() == 1
        np.testing.assert_allclose(np.abs(dense).sum(axis=1), np.sqrt(d / b))
    if R.family == "ams" or (R.family == "srht" and not case[1]):
        np.testing.assert_allclose(np.abs(dense), 1 / np.sqrt(b), rtol=1e-12)
    if case[1].get("transform") == "fourier":
        assert np.abs(dense).max() <= np.sqrt(2 / b) + 1e-12
        np.testing.assert_allclose(dense @ dense.T, d / b * np.eye(b), atol=1e-11)


def test_small_b_falls_back_and_says_so():
    key = desketch.Key(1)
    assert "textbook" not in repr(desketch.draw("countsketch", d=1000, b=64, key=key))
    assert "textbook (block needs 64 rows)" in repr(desketch.draw("countsketch", d=1000, b=63, key=key))
    assert "textbook (block needs 64 rows)" in repr(desketch.draw("sparse2", d=1000, b=255, nnz=4, key=key))
    assert repr(desketch.draw("srht", d=1000, b=10, key=key, block=64)) == "srht(d=1000, b=10, block=64, alpha=101)"
    fourier = desketch.draw("srht", d=1000, b=10, key=key, transform="fourier")
    assert repr(fourier) == "srht(d=1000, b=10, transform=fourier, alpha=99)"


@pytest.mark.parametrize("d", [1, 2, 5, 97, 100, 1001, 4097])
def test_fourier_is_never_padded_and_attains_the_lower_bound_for_every_d(d, numbers):
    """R Rᵀ = (d/b) I, so |RᵀRg|² = (d/b)|Rg|² in every single draw, and alpha = d/b - 1 whatever d is."""
    b = -(-d // 3)
    R = desketch.draw("srht", d=d, b=b, key=desketch.Key(4), transform="fourier")
    assert R.distribution.n == d
    assert R.alpha == pytest.approx(d / b - 1, abs=1e-12)
    s = R.sketch(numbers(d))
    assert (R.desketch(s) ** 2).sum() == pytest.approx(d / b * (s**2).sum(), rel=1e-12)


def test_the_default_transform_is_hadamard_because_an_fft_rounds_differently_on_other_platforms():
    key = desketch.Key(2)
    assert desketch.draw("srht", d=100, b=9, key=key) == desketch.draw(
        "srht", d=100, b=9, key=key, transform="hadamard"
    )
    assert desketch.draw("srht", d=100, b=9, key=key) != desketch.draw("srht", d=100, b=9, key=key, transform="fourier")


def test_fourier_rounds_once_from_float64(numbers):
    """The float32 result is the float64 one rounded, so that platforms differ as rarely as can be."""
    R = desketch.draw("srht", d=5001, b=300, key=desketch.Key(6), transform="fourier")
    g, s = numbers((2, 5001)).astype("f4"), numbers((2, 300)).astype("f4")
    np.testing.assert_array_equal(R.sketch(g), R.sketch(g.astype("f8")).astype("f4"))
    np.testing.assert_array_equal(R.desketch(s), R.desketch(s.astype("f8")).astype("f4"))


def test_srht_in_segments_is_one_hadamard_transform(path, numbers):
    d, b = 40_000, 20
    R = desketch.draw("srht", d=d, b=b, key=desketch.Key(3))
    assert R.distribution.segment < R.distribution.n
    g = numbers(d)
    dense = R.desketch(np.eye(b))
    np.testing.assert_allclose(np.abs(dense), 1 / np.sqrt(b), rtol=1e-12)
    gram = dense @ dense.T * b / d
    np.testing.assert_allclose(np.diag(gram), 1)
    np.testing.assert_allclose(R.sketch(g), dense @ g, atol=1e-9)


def test_another_fft_library_rarely_gives_another_float32(numbers):
    """Why the Fourier variant rounds once from float64: PyTorch's FFT in place of SciPy's changes next to no bits."""
    d, b = 100_001, 3000
    R = desketch.draw("srht", d=d, b=b, key=desketch.Key(7), transform="fourier")
    s = numbers((10, b)).astype("f4")
    x = np.zeros((10, d))
    x[:, R.reference.rows] = s.astype("f8") / np.sqrt(b)
    X = torch.fft.fft(torch.from_numpy(x)).numpy()
    other = (X.real - X.imag) * R.reference.signs
    assert (other != R.desketch(s.astype("f8"))).mean() > 0.5
    assert (other.astype("f4") != R.desketch(s)).mean() < 1e-5
