"""Averages without a server: exact over a spanning tree, approximate by gossip.

Both work because a sketch is linear: ``R_t`` is the same on every node, so the weighted mean of the sketches is the
sketch of the weighted mean, ``sum p_c (R Δ_c) = R (sum p_c Δ_c)``, whatever order partial sums are formed in.  Neither
protocol ever sees a d-vector.

*Exact.*  Convergecast partial sums to the root of a breadth-first tree, then broadcast the mean: ``2 depth`` hops,
one message per edge and direction.

*Gossip.*  Repeated averaging with the neighbours, ``x <- W x`` with Metropolis-Hastings weights, accelerated by the
Chebyshev recursion.  With ``lambda`` the second eigenvalue modulus of W, the disagreement after k hops is at most
``1/T_k(1/lambda)`` of what it was, T_k the Chebyshev polynomial; plain gossip would only reach ``lambda^k``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts are imported at first use

from desketch.errors import InputError
from desketch.mesh.topology import SpanningTree, Topology

__all__ = ["GossipResult", "chebyshev_bound", "gossip", "hops_for", "tree_mean"]

Array = npt.NDArray[Any]


def tree_mean(values: Array, weights: Array, tree: SpanningTree) -> tuple[Array, float]:
    """Weighted mean of ``values[c]`` (a row a node) over the tree's nodes, as the root forms it, and the total weight.

    Partial sums are in float64, children before parents, so the answer does not depend on how the tree was cut.
    A node of weight zero forwards sums but adds nothing.
    """
    totals = np.asarray(weights, dtype=np.float64)[tree.nodes].copy()
    if not totals.sum() > 0:
        raise InputError("the average needs at least one node with a positive weight; every weight is zero")
    sums = np.asarray(values, dtype=np.float64)[tree.nodes] * totals[:, None]
    place = np.empty(int(tree.nodes.max()) + 1, dtype=np.int64)
    place[tree.nodes] = np.arange(len(tree.nodes))
    up = place[tree.parent]
    edges = np.searchsorted(tree.level, np.arange(tree.depth + 2))  # nodes are listed level by level
    for level in range(tree.depth, 0, -1):
        children = slice(int(edges[level]), int(edges[level + 1]))
        parents = slice(int(edges[level - 1]), int(edges[level]))
        count = children.stop - children.start
        gather: Any = scipy.sparse.csr_matrix(
            (np.ones(count), (up[children] - parents.start, np.arange(count))),
            shape=(parents.stop - parents.start, count),
        )
        sums[parents] += gather @ sums[children]
        totals[parents] += gather @ totals[children]
    return sums[0] / totals[0], float(totals[0])


@dataclass(frozen=True)
class GossipResult:
    """What every node holds after gossip, and how good it is guaranteed to be."""

    means: Array  # (n, b): node c's estimate of the weighted mean of its component
    hops: int
    bound: float  # the disagreement left is at most this share of the first


def chebyshev_bound(mixing: float, hops: int) -> float:
    """1/T_hops(1/lambda): the largest share of the disagreement that can be left after the accelerated hops."""
    if mixing <= 0.0 or hops == 0:
        return 1.0 if hops == 0 else 0.0
    if mixing >= 1.0:
        return 1.0
    return 1.0 / math.cosh(min(hops * math.acosh(1.0 / mixing), 700.0))


def hops_for(mixing: float, tolerance: float) -> int:
    """Fewest hops after which at most ``tolerance`` of the disagreement can be left."""
    if not 0.0 < tolerance < 1.0:
        raise InputError(f"the gossip tolerance must be between 0 and 1, got {tolerance}")
    if mixing <= 0.0:
        return 1
    if mixing >= 1.0:
        raise InputError("gossip cannot mix on this graph (second eigenvalue 1): it is not connected")
    return max(1, math.ceil(math.acosh(1.0 / tolerance) / math.acosh(1.0 / mixing)))


def gossip(values: Array, weights: Array, topology: Topology, *, hops: int) -> GossipResult:
    """Let every node estimate the weighted mean of its component's ``values`` by ``hops`` exchanges with neighbours.

    Nodes exchange the pair (weight x value, weight) and divide at the end, so unequal weights need no third party.
    """
    x = np.asarray(values, dtype=np.float64)
    p = np.asarray(weights, dtype=np.float64)
    mixed = _chebyshev(np.concatenate([x * p[:, None], p[:, None]], axis=1), topology, hops)
    floor = 1e-3 * float(p.sum()) / len(p)
    means = np.where(mixed[:, -1:] > floor, mixed[:, :-1] / np.maximum(mixed[:, -1:], floor), 0.0)
    return GossipResult(means, hops, chebyshev_bound(topology.mixing, hops))


def _chebyshev(x: Array, topology: Topology, hops: int) -> Array:
    """``T_k(W/lambda) x / T_k(1/lambda)`` by the three-term recursion, each term one exchange with the neighbours."""
    if hops == 0 or len(topology.edges) == 0:
        return x
    W, lam = topology.metropolis, topology.mixing
    if not 0.0 < lam < 1.0:
        return W @ x
    previous, current = x, W @ x
    ratio = lam  # T_{k-1}(1/lambda) / T_k(1/lambda)
    for _ in range(hops - 1):
        following = 1.0 / (2.0 / lam - ratio)
        current, previous = (2.0 * following / lam) * (W @ current) - (following * ratio) * previous, current
        ratio = following
    return current
