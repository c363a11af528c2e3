"""Weighted sketches: the moments of D RᵀR D⁻¹, and that the weights of the theorem have the least noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from desketch.theory import embedding
from desketch.theory.weights import best_weights, weighted_alpha, weighted_alpha_curved
from desketch.verify.moments import second_moment
from desketch.verify.rows import Row, exact_row, sampled_row, unbiased_row
from desketch.verify.simulate import Draws

__all__ = ["check_weights"]

Array = np.ndarray[Any, np.dtype[Any]]
_RIVALS = 200


def check_weights(draws: Draws) -> Iterator[Row]:
    """Unbiased, energy and curved energy within their alphas, and no rival weights with less noise."""
    b, d = draws.R.shape[2:]
    sizes = _tensors(d)
    rng = np.random.default_rng(11)
    D = np.repeat([0.4, 1.0, 2.0], sizes)
    H = _curvature(rng, d)
    top = float(np.linalg.eigvalsh(H)[-1])
    for f, family in enumerate(draws.families):
        R = draws.R[f * draws.seeds : (f + 1) * draws.seeds].astype(np.float64).reshape(-1, b, d)
        constants = embedding(family, d=d, b=b)
        spread = {
            "trace": float((D**2).sum()),
            "smallest": float(D.min() ** 2),
            "largest": float(D.max() ** 2),
        }
        for name, g in (("random g", rng.normal(size=d)), ("g in the lightest tensor", np.eye(d)[0])):
            g = g / np.linalg.norm(g)
            used = D * np.einsum("rbd,rb->rd", R, (R @ (g / D)))
            setting = f"{name}, D over 5:1, d={d}, b={b}"
            yield unbiased_row("weighted sketch, mean", setting, family, used @ g, 1.0, corrected=True)
            bound = np.array([1 + weighted_alpha(constants, **spread)])
            energy = (used**2).sum(1)[None]
            yield sampled_row("weighted sketch, alpha", setting, family, energy, bound, corrected=True)
            ratio = float((D**2 * np.diag(H)).sum()) / top
            curved = np.einsum("ri,ij,rj->r", used, H, used)[None] / top
            bound = np.array([1 + weighted_alpha_curved(constants, ratio, **spread)])
            yield sampled_row("weighted sketch, curved alpha", setting, family, curved, bound, corrected=True)
        yield _least_noise(family, H, rng.normal(size=d), sizes, b=b, rng=rng)


def _least_noise(family: str, H: Array, g: Array, sizes: list[int], *, b: int, rng: np.random.Generator) -> Row:
    """E[(D M D⁻¹ g)ᵀH(D M D⁻¹ g)] in closed form: that of the best weights beside that of many others."""
    d = len(g)
    edges = np.cumsum([0, *sizes])
    blocks = [slice(edges[i], edges[i + 1]) for i in range(len(sizes))]
    norms = [float(np.linalg.norm(g[block])) for block in blocks]
    best = np.array(best_weights(norms, [float(np.trace(H[block, block])) for block in blocks]))
    sandwich = second_moment(family, d=d, b=b)

    def noise(weights: Array) -> float:
        D = np.repeat(weights, sizes)
        h = g / D
        return float(h @ sandwich(D[:, None] * H * D) @ h)

    rivals = np.array(
        [noise(best * np.exp(rng.normal(size=len(best)))) for _ in range(_RIVALS)] + [noise(best * 0 + 1)]
    )
    setting = f"{_RIVALS} other weights and D = 1, d={d}, b={b}"
    return exact_row("best weights", setting, family, np.full(len(rivals), noise(best)), rivals, corrected=True)


def _tensors(d: int) -> list[int]:
    return [d // 4, d // 4, d - 2 * (d // 4)]


def _curvature(rng: np.random.Generator, d: int) -> Array:
    """A dense H whose tensors differ in scale by a factor of 100."""
    A = rng.normal(size=(d, d)) * np.repeat([10.0, 3.0, 1.0], _tensors(d))[:, None]
    return A @ A.T / d
