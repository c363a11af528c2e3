"""Who can talk to whom: named graphs, their spanning trees, and their gossip weights.

The paper's remark on decentralisation: with neighbours only, sketched changes spread in O(diameter) rounds.  A
`Topology` is a simple graph on nodes 0 .. n-1, built by name (``ring``, ``regular:4``, ``file:edges.txt`` ...) with
networkx; everything that runs per round works on its edge array, so that graphs of 10,000 nodes stay cheap.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts are imported at first use

from desketch.core.lazy import lazy
from desketch.errors import ConfigError

__all__ = ["TOPOLOGIES", "SpanningTree", "Topology", "build_topology"]

nx = lazy("networkx")
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SpanningTree:
    """A breadth-first spanning tree of one component: ``parent[root] == root``, nodes listed root first."""

    nodes: Ints
    parent: Ints  # parent[j] is the parent of nodes[j], as a node number
    level: Ints  # level[j] is the depth of nodes[j]

    @property
    def root(self) -> int:
        """The node at which sums meet."""
        return int(self.nodes[0])

    @property
    def depth(self) -> int:
        """Hops from the farthest leaf to the root; an exact average takes twice as many."""
        return int(self.level[-1])


@dataclass(frozen=True, eq=False)
class Topology:
    """A simple undirected graph on nodes ``0 .. n-1``; ``edges`` is an (m, 2) array with ``i < j`` in each row."""

    name: str
    n: int
    edges: Ints

    @cached_property
    def adjacency(self) -> Any:
        """The symmetric 0/1 matrix in CSR form."""
        i, j = self.edges.T
        ones = np.ones(2 * len(self.edges))
        return scipy.sparse.csr_matrix((ones, (np.r_[i, j], np.r_[j, i])), shape=(self.n, self.n))

    @cached_property
    def degrees(self) -> Ints:
        """Neighbours of every node."""
        return np.bincount(self.edges.ravel(), minlength=self.n).astype(np.int64)

    def components(self) -> list[Ints]:
        """The connected components, each sorted, largest first (ties: smallest node first)."""
        count, label = scipy.sparse.csgraph.connected_components(self.adjacency, directed=False)
        order = np.argsort(label, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(label, minlength=count))[:-1])
        return sorted((p.astype(np.int64) for p in parts), key=lambda p: (-len(p), int(p[0])))

    def without(self, *, nodes: npt.ArrayLike = (), edges: npt.ArrayLike = ()) -> Topology:
        """The graph after failures: the given nodes lose all their edges, the given edge rows vanish."""
        keep = np.ones(len(self.edges), dtype=bool)
        keep[np.asarray(edges, dtype=np.int64)] = False
        dead = np.zeros(self.n, dtype=bool)
        dead[np.asarray(nodes, dtype=np.int64)] = True
        keep &= ~dead[self.edges].any(axis=1)
        return Topology(self.name, self.n, self.edges[keep])

    def spanning_tree(self, component: Ints) -> SpanningTree:
        """Breadth-first tree of a component from (nearly) its centre, so that its depth is about half the diameter.

        A few sweeps collect far-apart nodes; the next root is the node whose largest distance to them is smallest.
        """
        tree = best = self._breadth_first(int(component[0]))
        reach = np.zeros(self.n, dtype=np.int64)
        for _ in range(4):
            far = self._breadth_first(int(tree.nodes[-1]))
            distance = np.zeros(self.n, dtype=np.int64)
            distance[far.nodes] = far.level
            reach = np.maximum(reach, distance)
            tree = self._breadth_first(int(component[np.argmin(reach[component])]))
            best = min(best, tree, key=lambda t: t.depth)
        return best

    def _breadth_first(self, root: int) -> SpanningTree:
        nodes, parent = scipy.sparse.csgraph.breadth_first_order(self.adjacency, root, directed=False)
        level = np.zeros(self.n, dtype=np.int64)
        for node in nodes[1:].tolist():
            level[node] = level[parent[node]] + 1
        parents = parent[nodes].astype(np.int64)
        parents[0] = root
        return SpanningTree(nodes.astype(np.int64), parents, level[nodes])

    @cached_property
    def metropolis(self) -> Any:
        """Metropolis-Hastings weights W_ij = 1/(1 + max(deg i, deg j)): symmetric, doubly stochastic, CSR."""
        i, j = self.edges.T
        w = 1.0 / (1.0 + np.maximum(self.degrees[i], self.degrees[j]))
        off = scipy.sparse.csr_matrix((np.r_[w, w], (np.r_[i, j], np.r_[j, i])), shape=(self.n, self.n))
        stay = 1.0 - np.asarray(off.sum(axis=1)).ravel()
        return (off + scipy.sparse.diags(stay)).tocsr()

    @cached_property
    def mixing(self) -> float:
        """The largest |eigenvalue of W|, lambda, on vectors of mean zero; the worst over components.

        Disagreement inside a component shrinks at least by lambda per plain gossip hop.
        """
        parts = [p for p in self.components() if len(p) > 1]
        return max((_second_eigenvalue(self.metropolis[p][:, p]) for p in parts), default=0.0)

    def __repr__(self) -> str:
        return f"Topology({self.name}, {self.n} nodes, {len(self.edges)} edges)"


def _second_eigenvalue(W: Any) -> float:
    """Largest |eigenvalue| of a connected doubly stochastic symmetric W on the complement of the ones vector."""
    n = W.shape[0]
    if n <= 512:
        values = np.linalg.eigvalsh(W.toarray())
        return float(max(abs(values[0]), abs(values[-2])))
    ones = np.full(n, 1.0 / np.sqrt(n))
    deflated = scipy.sparse.linalg.LinearOperator((n, n), matvec=lambda x: W @ x - ones * (ones @ x), dtype=np.float64)
    start = np.cos(np.arange(n))  # fixed, so that the answer does not depend on a random start
    with contextlib.suppress(scipy.sparse.linalg.ArpackNoConvergence):
        largest = scipy.sparse.linalg.eigsh(
            deflated, k=1, which="LM", tol=1e-6, maxiter=40, v0=start, return_eigenvectors=False
        )
        if abs(largest[0]) < 0.99:
            return float(abs(largest[0]))
    # slow mixers (rings, grids) need the gap 1 - lambda to full precision; they are sparse to factorise, so shift
    # just above the eigenvalue one and invert
    nearest = scipy.sparse.linalg.eigsh(W.tocsc(), k=2, sigma=1.0 + 1e-9, v0=start, return_eigenvectors=False)
    gershgorin = 1.0 - 2.0 * float(W.diagonal().min())  # no eigenvalue lies below its negative
    return max(float(np.sort(nearest)[0]), gershgorin)


def build_topology(spec: str, nodes: int, *, seed: int = 0) -> Topology:
    """Build a connected graph from its name, e.g. ``ring``, ``tree:3``, ``erdos:0.1``, ``file:edges.txt``."""
    name, _, argument = spec.partition(":")
    if name not in TOPOLOGIES:
        raise ConfigError(f"unknown topology {spec!r}; choose one of {', '.join(TOPOLOGIES)} (options after a colon)")
    if nodes < 2:
        raise ConfigError(f"a topology joins at least 2 nodes, got {nodes}; train a single client without --topology")
    try:
        graph = TOPOLOGIES[name](nodes, argument, seed)
    except (nx.NetworkXError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"topology {spec!r} cannot be built on {nodes} nodes: {error}") from error
    loops = sorted(i for i, j in graph.edges if i == j)
    if loops:
        raise ConfigError(
            f"topology {spec!r} has self-loops at nodes {loops[:5]}; a node needs no link to itself: remove them"
        )
    edges = np.array(sorted((min(e), max(e)) for e in graph.edges), dtype=np.int64).reshape(-1, 2)
    topology = Topology(spec, nodes, edges)
    parts = topology.components()
    if len(parts) > 1:
        raise ConfigError(
            f"topology {spec!r} on {nodes} nodes is not connected: {len(parts)} parts, the smallest is nodes "
            f"{parts[-1][:5].tolist()}; add edges (or raise the edge probability)"
        )
    return topology


def _number(argument: str, default: float, what: str) -> float:
    if not argument:
        return default
    try:
        return float(argument)
    except ValueError:
        raise ConfigError(f"{what} must be a number, got {argument!r}") from None


def _grid(n: int, argument: str, seed: int) -> Any:
    rows = int(argument or next(r for r in range(int(n**0.5), 0, -1) if n % r == 0))
    if rows < 1 or n % rows:
        raise ConfigError(f"grid:{rows} does not divide {n} nodes; use a divisor of {n} as the number of rows")
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows), ordering="sorted")


def _tree(n: int, argument: str, seed: int) -> Any:
    arity = int(_number(argument, 2, "the branching of tree:K"))
    if arity < 1:
        raise ConfigError(f"tree:K needs K >= 1, got {arity}")
    return nx.full_rary_tree(arity, n)


def _regular(n: int, argument: str, seed: int) -> Any:
    return nx.random_regular_graph(int(_number(argument, 4, "the degree of regular:K")), n, seed=seed)


def _erdos(n: int, argument: str, seed: int) -> Any:
    p = _number(argument, min(1.0, 2.0 * float(np.log(n)) / n), "the probability of erdos:P")
    if not 0.0 < p <= 1.0:
        raise ConfigError(f"erdos:P needs 0 < P <= 1, got {p}")
    return nx.fast_gnp_random_graph(n, p, seed=seed)


def _small_world(n: int, argument: str, seed: int) -> Any:
    k, _, p = argument.partition(",")
    degree, rewired = _number(k, 4, "K of smallworld:K,P"), _number(p, 0.1, "P of smallworld:K,P")
    return nx.connected_watts_strogatz_graph(n, int(degree), rewired, seed=seed)


def _from_file(n: int, argument: str, seed: int) -> Any:
    path = Path(argument)
    if not path.is_file():
        raise ConfigError(f"no edge list at {argument!r}; give file:PATH, one 'i j' pair of node numbers a line")
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            i, j = (int(word) for word in words)
        except ValueError:
            raise ConfigError(f"{argument}:{number}: expected two node numbers, got {line.strip()!r}") from None
        if not (0 <= i < n and 0 <= j < n):
            raise ConfigError(f"{argument}:{number}: node numbers run from 0 to {n - 1}, got {line.strip()!r}")
        if graph.has_edge(i, j):
            warnings.warn(f"{argument}:{number}: edge {i} {j} is listed twice; kept once", stacklevel=2)
        graph.add_edge(i, j)
    return graph


# name -> (nodes, text after the colon, seed) -> networkx graph
TOPOLOGIES: dict[str, Callable[[int, str, int], Any]] = {
    "ring": lambda n, argument, seed: nx.cycle_graph(n),
    "grid": _grid,
    "tree": _tree,
    "star": lambda n, argument, seed: nx.star_graph(n - 1),
    "regular": _regular,
    "erdos": _erdos,
    "smallworld": _small_world,
    "file": _from_file,
}
