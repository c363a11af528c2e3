"""Layouts change the moments: every constant against exact enumeration, and against the matrices that are drawn."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.linalg import hadamard

import desketch
from desketch.errors import TheoryError
from desketch.sketches import family as distribution
from desketch.theory.embedding import HASH_BLOCK, embedding, layout_of
from desketch.theory.tails import chebyshev, columns, vectors

CASES = [
    ("srht", {"block": 8}),
    ("srht", {"block": 1}),
    ("countsketch", {}),
    ("countsketch", {"layout": "textbook"}),
    ("sparse1", {"nnz": 2}),
    ("sparse1", {"nnz": 2, "layout": "textbook"}),
    ("sparse2", {"nnz": 2}),
    ("sparse2", {"nnz": 3}),
]


def enumerate_block_srht(n, B, b, d):
    """Every M = RᵀR of srht(block=B): all subsets of rows, all signs (the first of a block is fixed: M ignores it)."""
    H = np.kron(np.eye(n // B), hadamard(B) / np.sqrt(B))
    free = [i for i in range(d) if i % B]
    for flips in product((1.0, -1.0), repeat=len(free)):
        signs = np.ones(n)
        signs[free] = flips
        U = (H * signs)[:, :d]
        for rows in combinations(range(n), b):
            R = np.sqrt(n / b) * U[list(rows)]
            yield R.T @ R


def largest_excess(excess_at, d, rng, starts=30):
    """sup of gᵀ excess_at(h) g over unit g and h, climbing one argument at a time from sparse, dense and flat h."""
    best = 0.0
    for i in range(starts):
        rough = rng.standard_normal(d)
        h = (rough * (rng.random(d) < 0.3) + 1e-9, rough, 1 + 0.1 * rough)[i % 3]
        h /= np.linalg.norm(h)
        for _ in range(30):
            values, basis = np.linalg.eigh(excess_at(h))
            h = basis[:, -1]
        best = max(best, values[-1])
    return best


@pytest.mark.parametrize(("n", "B", "b", "d"), [(8, 4, 3, 8), (8, 4, 2, 7), (8, 2, 5, 7), (6, 2, 2, 6), (4, 1, 2, 4)])
def test_constants_of_block_srht_by_enumeration(n, B, b, d):
    grams = np.stack(list(enumerate_block_srht(n, B, b, d)))
    np.testing.assert_allclose(grams.mean(0), np.eye(d), atol=1e-12)
    stated = embedding("srht", d=d, b=b, block=B)

    def excess(h):
        v = grams @ h
        return v.T @ v / len(v) - np.outer(h, h)

    rng = np.random.default_rng(0)
    assert largest_excess(excess, d, rng) * b == pytest.approx(stated.a, rel=1e-6)
    second = np.einsum("nij,njk->ik", grams, grams) / len(grams)
    assert np.linalg.eigvalsh(second)[-1] - 1 == pytest.approx(stated.alpha, rel=1e-9)
    for rank in (1, 2, 3):
        Q = np.linalg.qr(rng.standard_normal((d, rank)))[0]
        Q[B:] = Q[B:] if rank > 1 else 0.0  # the worst trace sits in one transform
        H = Q @ Q.T / np.linalg.eigvalsh(Q @ Q.T)[-1]
        energy = np.linalg.eigvalsh(np.einsum("nij,jk,nkl->il", grams, H, grams) / len(grams))[-1]
        assert energy <= 1 + stated.alpha_curved(max(float(np.trace(H)), 1.0)) + 1e-9


def test_block_srht_is_no_embedding_with_the_papers_constant():
    """The printed a = 2 at d = 1024, b = 64, B = 16: the flat vector of one block shows about 3n/B = 192."""
    d, b, B = 1024, 64, 16
    g = np.zeros(d)
    g[:B] = B**-0.5
    draws = (desketch.draw("srht", d=d, b=b, block=B, key=desketch.Key(3).fold_in("a", t)) for t in range(4000))
    squares = np.array([float((R.sketch(g) ** 2).sum()) ** 2 for R in draws])
    seen, error = (squares.mean() - 1) * b, squares.std() * b / len(squares) ** 0.5
    stated = embedding("srht", d=d, b=b, block=B)
    assert abs(seen - stated.a) < 4.5 * error
    assert seen - 4.5 * error > 50 * stated.a_paper
    assert stated.a == pytest.approx(3 * d / B, rel=0.12)


def test_trace_in_one_block_defeats_the_constant_of_one_transform():
    """H of rank 8 inside a block of 8: a full transform pays 9 p, blocks pay n/b - 1."""
    d, b, B = 64, 8, 8
    draws = (desketch.draw("srht", d=d, b=b, block=B, key=desketch.Key(4).fold_in("H", t)) for t in range(4000))
    energy = np.array([(R.desketch(R.sketch(np.eye(d)[0]))[:B] ** 2).sum() for R in draws])
    blocks, whole = embedding("srht", d=d, b=b, block=B), embedding("srht", d=d, b=b)
    error = energy.std() / len(energy) ** 0.5
    assert energy.mean() <= 1 + blocks.alpha_curved(float(B)) + 4.5 * error
    assert energy.mean() - 4.5 * error > 1 + 3 * whole.alpha_curved(float(B))


def collision_squares(name, options, d, b):
    """p_ij = E[(RᵀR)_ij²] of a hashed family: 1/b across groups, counted over all offsets inside one."""
    F = distribution(name, d=d, b=b, **options)
    group = np.arange(d) // (HASH_BLOCK if F.blocked else 1)
    inside = (F.entries - 1) / (F.entries * (b - 1)) if name == "sparse1" else 0.0
    p = np.where(group[:, None] == group, inside, 1 / b)
    np.fill_diagonal(p, 0)
    return p


@pytest.mark.parametrize("d", [64, 65, 128, 150, 200])
@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] != "srht"])
def test_coordinate_constant_of_hashed_layouts_is_the_supremum(name, options, d):
    nnz = options.get("nnz", 1)
    b = 64 * nnz if name == "sparse2" and d >= 64 * nnz else 64
    p = collision_squares(name, options, d, b)
    found = largest_excess(lambda h: np.diag(p @ h**2) + p * np.outer(h, h), d, np.random.default_rng(1), starts=6) * b
    stated = embedding(name, d=d, b=b, **options)
    assert found <= stated.a + 1e-9
    assert found == pytest.approx(stated.a, rel=1e-3, abs=1e-9)
    assert stated.alpha == pytest.approx(p.sum(0).max())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_drawn_matrices_have_the_stated_moments(name, options):
    d, b = 150, 140
    stated = embedding(name, d=d, b=b, **options)
    R = desketch.draw(name, d=d, b=b, key=desketch.Key(0), **options)
    assert R.alpha == pytest.approx(stated.alpha, rel=1e-12)
    dense = [
        desketch.draw(name, d=d, b=b, key=desketch.Key(6).fold_in("M", t), **options).to_dense() for t in range(400)
    ]
    grams = np.stack([A.T @ A for A in dense])
    size = layout_of(name, d=d, b=b, **options)
    spot = 2 * size.size if name == "srht" else d
    g = np.zeros(d)
    g[: size.size if name == "srht" else d] = 1
    for x in (g, np.eye(d)[0], np.arange(d) < spot):
        x = x / np.linalg.norm(x)
        square = np.einsum("i,nij,j->n", x, grams, x) ** 2
        assert square.mean() <= 1 + stated.a / b + 4.5 * square.std() / 20
        energy = ((grams @ x) ** 2).sum(1)
        assert energy.mean() <= 1 + stated.alpha + 4.5 * energy.std() / 20
    off = np.abs(grams * (1 - np.eye(d))).max((1, 2))
    assert (off > columns(name, d=d, b=b, delta=0.05, **options).proved + 1e-9).mean() <= 0.05 + 4.5 * (
        0.05 / 400
    ) ** 0.5
    rng = np.random.default_rng(3)
    for u, v in [rng.standard_normal((2, d)), (g, g), (np.eye(d)[1], np.eye(d)[2])]:
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        error = np.abs(grams @ v @ u - u @ v)
        for tail in (vectors, chebyshev):
            proved = tail(name, d=d, b=b, delta=0.05, **options).proved
            assert (error > proved).mean() <= 0.05 + 4.5 * (0.05 / 400) ** 0.5


def test_tails_of_blocks_are_wider_and_the_whole_transform_has_its_own():
    sizes = {"d": 4096, "b": 256, "delta": 0.01}
    for tail in (columns, vectors, chebyshev):
        assert tail("srht", **sizes, block=64).proved > 1.5 * tail("srht", **sizes).proved
        assert tail("srht", **sizes, block=4096).proved == tail("srht", **sizes).proved


@pytest.mark.parametrize("d", [1, 63, 64, 65, 1000, 4097])
@pytest.mark.parametrize("b", [1, 20, 64, 200])
def test_layouts_are_resolved_as_drawn(d, b):
    if b > d:
        pytest.skip("no such sketch")
    for block in (None, 1, 64, 8192):
        F, z = distribution("srht", d=d, b=b, block=block), layout_of("srht", d=d, b=b, block=block)
        assert (F.size, F.n) == (z.size, z.n)
        assert F.alpha == pytest.approx(embedding("srht", d=d, b=b, block=block).alpha)
    for name in ("countsketch", "sparse1", "sparse2"):
        F, z = distribution(name, d=d, b=b), layout_of(name, d=d, b=b)
        assert (F.entries, F.last, F.blocked) == (z.nnz, z.last, z.hashed == HASH_BLOCK)
        assert F.alpha == pytest.approx(embedding(name, d=d, b=b).alpha)
        assert z.squares == pytest.approx(sum((m / b) ** 2 for _, m in F.tables) if name == "sparse2" else 1 / z.nnz)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("srht", {"block": 3}, "power of two"),
        ("srht", {"block": "big"}, "power of two"),
        ("gaussian", {"block": 4}, "no option block"),
        ("countsketch", {"layout": "diagonal"}, "block or textbook"),
        ("countsketch", {"nnz": 2}, "no option nnz"),
        ("sparse1", {"nnz": 9}, "at most b"),
    ],
)
def test_wrong_options_are_refused(name, options, match):
    with pytest.raises(TheoryError, match=match):
        embedding(name, d=16, b=8, **options)
