"""The theory of a family, by Monte Carlo over keys: unbiased, second moment = exact alpha, rounds independent."""

import numpy as np
import pytest

import desketch
from desketch.sketches import family

KEY = desketch.Key(77)
DRAWS = 1500


def _draws(case, d, b, n):
    name, options = case
    return (desketch.draw(name, d=d, b=b, key=KEY.fold_in("moments", t), **options) for t in range(n))


def _z(samples, expected):
    samples = np.asarray(samples)
    return (samples.mean(0) - expected) / np.maximum(samples.std(0, ddof=1) / np.sqrt(len(samples)), 1e-12)


def _worst_unit(case, d):
    """A vector that attains the supremum: the last coordinate, which lies in the smallest block (SRHT: the first)."""
    return np.eye(d)[0 if case[0] == "srht" else d - 1]


def test_unbiased_with_second_moment_alpha(case):
    """z-tests of E<h, RᵀRg> = <h, g> and of E|RᵀRg|² = (1 + alpha)|g|² at the worst unit vector and a dense one."""
    d, b = 300, 200 if case[1].get("layout") != "textbook" else 20
    rng = np.random.default_rng(0)
    h, dense = rng.standard_normal((2, d))
    dense /= np.linalg.norm(dense)
    worst = _worst_unit(case, d)
    inner, second, second_dense = [], [], []
    for R in _draws(case, d, b, DRAWS):
        out = R.desketch(R.sketch(np.stack([worst, dense])))
        inner.append(out @ h)
        second.append(out[0] @ out[0])
        second_dense.append(out[1] @ out[1])
    assert np.abs(_z(inner, [worst @ h, dense @ h])).max() < 4.5
    assert abs(_z(second, 1 + R.alpha)) < 4.5
    assert _z(second_dense, 1 + R.alpha) < 4.5
    assert np.mean(second) <= 1 + R.alpha_paper


@pytest.mark.parametrize("d", [1, 2, 5, 17, 33])
def test_alpha_is_the_supremum_over_all_g_for_every_padding(case, d):
    """E(RᵀR)² is estimated whole; its largest eigenvalue is the supremum, up to noise, and never below 1 + alpha."""
    name, options = case
    b = max(1, d // 3)
    if "nnz" in options:
        options = {**options, "nnz": min(2, b)}
    squares, n = np.zeros((d, d)), 300
    diagonal = np.zeros((n, d))
    for t, R in enumerate(_draws((name, options), d, b, n)):
        gram = R.to_dense().T @ R.to_dense()
        squares += gram @ gram / n
        diagonal[t] = (gram**2).sum(0)
    exact = 1 + R.alpha
    assert np.abs(squares - np.diag(np.diag(squares))).max() < 0.4 * exact
    worst = diagonal[:, _worst_unit((name, options), d).argmax()]
    assert abs(worst.mean() - exact) <= 4.5 * worst.std() / np.sqrt(n) + 1e-9
    assert np.diag(squares).max() <= exact + 5 * diagonal.std(0).max() / np.sqrt(n) + 1e-9


@pytest.mark.parametrize("d", [64, 65, 128, 129, 200, 640])
@pytest.mark.parametrize(("name", "nnz"), [("countsketch", 1), ("sparse1", 3), ("sparse2", 3)])
def test_alpha_of_block_layouts_from_exact_collision_probabilities(name, nnz, d):
    """Alpha from the pair probabilities themselves, counted over all offsets, block by block."""
    b = 64 * nnz if d >= 64 * nnz else 64
    nnz = nnz if b > 64 else 1
    options = {} if name == "countsketch" else {"nnz": nnz}
    F = family(name, d=d, b=b, **options)
    block = np.arange(d) // 64
    inside = (nnz - 1) / (nnz * (b - 1)) if name == "sparse1" else 0.0
    p = np.where(block[:, None] == block, inside, 1 / b)
    np.fill_diagonal(p, 0)
    assert F.alpha == pytest.approx(p.sum(0).max(), rel=1e-12)
    assert F.alpha <= (d - 1) / b + 1e-12 <= F.alpha_paper


def test_rounds_are_independent(case):
    """Entries of R_t and R_{t+1} are uncorrelated: <R_t, R_{t+1}> has mean 0, over many rounds."""
    name, options = case
    d, b = 130, 64
    sketches = [
        desketch.draw(
            name, d=d, b=b, key=KEY.fold_in("round", t), **{**options, **({"nnz": 1} if options.get("nnz") else {})}
        )
        for t in range(400)
    ]
    g = np.random.default_rng(1).standard_normal(d)
    outs = np.stack([R.desketch(R.sketch(g)) - g for R in sketches])
    products = (outs[1:] * outs[:-1]).sum(1)
    assert abs(_z(products, 0.0)) < 4.5


def test_tails_of_the_bucket_hash():
    """A bare 2-wise hash sends |RᵀRg|²/|g|² to 480 and beyond on structured g; random hashing stays near d/b = 32."""
    d, b = 16384, 512
    for layout in ("block", "textbook"):
        worst = 0.0
        for t in range(60):
            R = desketch.draw("countsketch", d=d, b=b, key=KEY.fold_in("tail", t), layout=layout)
            for g in (np.ones(d), np.arange(d) % 64 == 0, np.arange(d) < 4096):
                x = g.astype(np.float64)
                worst = max(worst, float((R.desketch(R.sketch(x)) ** 2).sum() / (x**2).sum()))
        assert worst < 60


def test_normals_are_normal():
    from scipy import stats

    R = desketch.draw("gaussian", d=20_000, b=10, key=KEY)
    z = R.to_dense().ravel() * np.sqrt(10)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    n = len(z)
    assert abs(z.mean()) * np.sqrt(n) < 4.5
    assert abs((z**2).mean() - 1) * np.sqrt(n / 2) < 4.5
    assert abs((z**4).mean() - 3) * np.sqrt(n / 96) < 4.5
    pairs = z.reshape(-1, 2, 16)
    assert abs((pairs[:, 0] ** 2 * pairs[:, 1] ** 2).mean() - 1) * np.sqrt(n / 2 / 8) < 4.5
