"""Algorithm 1 without a server: the same local steps and frames, averaged among neighbours only.

    tree     (``tree_mesh.py``) the exact mean over a spanning tree: replicas are those of the server mode
    gossip   (``gossip_mesh.py``) repeated averaging with the neighbours: every node keeps its own, nearly equal replica

Nodes and edges fail by rate, anew each round.  What is left of the graph may fall into components: each goes on by
itself, and they meet again by `desketch.mesh.lineage` (tree) or by the displacement term (gossip).
"""

from __future__ import annotations

import copy
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch import wire
from desketch.errors import ConfigError, InputError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant, encode_updates
from desketch.fed.iterates import Average
from desketch.fed.optimizers import ServerOptimizer
from desketch.fed.replica import Replica, digest
from desketch.fed.rounds import Observer, RoundRecord, check_ids
from desketch.mesh.topology import Topology

__all__ = ["Failures", "Mesh", "MeshRecord", "Traffic", "run_mesh"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Every round each node is down with rate ``nodes`` and each edge with rate ``edges``, independently."""

    nodes: float = 0.0
    edges: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0.0 <= self.nodes < 1.0 and 0.0 <= self.edges < 1.0):
            raise InputError(f"failure rates must be in [0, 1), got nodes={self.nodes}, edges={self.edges}")

    def strike(self, t: int, topology: Topology) -> tuple[Topology, frozenset[int]]:
        """What is left of the graph in round t, and the nodes that are down."""
        rng = np.random.default_rng([self.seed, 2, t])
        down = np.flatnonzero(rng.random(topology.n) < self.nodes)
        broken = np.flatnonzero(rng.random(len(topology.edges)) < self.edges)
        if len(down) + len(broken) == 0:
            return topology, frozenset()
        return topology.without(nodes=down, edges=broken), frozenset(down.tolist())


@dataclass(frozen=True, kw_only=True)
class MeshRecord(RoundRecord):
    """A round without a server; bytes are of all edges together, catch-up included in ``bytes_down``.

    ``dropped`` counts nodes that were down, ``bytes_critical`` what has to follow one another on the way of an average.
    """

    bytes_catch_up: int
    bytes_critical: int
    hops: int
    components: int
    consensus: float


@dataclass
class Traffic:
    """What one round put on the edges."""

    per_node: Ints  # bytes sent by each node, catch-up counted at who needs it
    up: int = 0
    down: int = 0
    catch_up: int = 0
    critical: int = 0
    hops: int = 0


@dataclass(kw_only=True)
class Mesh(ABC):
    """Nodes, their graph and their work; `run_mesh` drives it and leaves it resumable."""

    clients: Sequence[Participant]
    topology: Topology
    channel: SketchChannel
    optimizer: ServerOptimizer
    w0: Tensor
    failures: Failures = field(default_factory=Failures)
    average: Average = field(default_factory=Average)
    evaluate: Callable[[Tensor], Mapping[str, float]] = lambda w: {}
    evaluate_every: int = 1

    privacy: ClassVar[None] = None  # partial sums between neighbours would need another statement
    spent_budget: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(self.clients) != self.topology.n:
            raise ConfigError(f"{self.topology!r} needs {self.topology.n} clients, got {len(self.clients)}")
        check_ids(self.clients)
        if any(getattr(node, "mechanism", None) for node in self.clients) or self.channel.mechanism:
            raise ConfigError("privacy is not offered without a server: partial sums would need another statement")
        if self.channel.robust is not None and self.channel.aggregator.rule.bound() is not None:
            raise ConfigError(
                f"robust {self.channel.robust}: without a server nobody sees all updates apart; leave robust out, or "
                "use a server"
            )
        parts = self.topology.components()
        if len(parts) > 1:
            raise ConfigError(f"{self.topology!r} is not connected: {len(parts)} parts; add edges between them")
        self.bytes_per_node = np.zeros(self.topology.n, dtype=np.int64)
        self.t = 0
        self.start()

    @abstractmethod
    def start(self) -> None:
        """Set every node to w0."""

    @abstractmethod
    def step(self, t: int, alive: Topology, parts: list[Ints], traffic: Traffic) -> dict[int, str]:
        """One round on what is left of the graph; returns who was refused, and why."""

    @abstractmethod
    def replicas(self) -> list[tuple[Replica, int]]:
        """The distinct replicas, each with the number of nodes that hold it."""

    @abstractmethod
    def nodes_state(self) -> dict[str, Any]:
        """Every node's replica, as a tree."""

    @abstractmethod
    def load_nodes(self, state: dict[str, Any]) -> None:
        """Continue from `nodes_state`."""

    def state_dict(self) -> dict[str, Any]:
        """Everything `run_mesh` needs to go on bit for bit."""
        sent = self.bytes_per_node.tolist()
        return {"t": self.t, "sent": sent, "average": self.average.state_dict(), "nodes": self.nodes_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.t = int(state["t"])
        self.bytes_per_node = np.array(state["sent"], dtype=np.int64)
        self.average.load_state_dict(state["average"])
        self.load_nodes(state["nodes"])

    @property
    def model_vector(self) -> Tensor:
        """The w to use: the average over rounds if one is kept, else the mean of the nodes' w."""
        return self.average.of(self.mean_replica())

    def mean_replica(self) -> Tensor:
        """The mean of all nodes' w; the very w when all are equal."""
        held = self.replicas()
        if len(held) == 1:
            return held[0][0].w
        return torch.stack([replica.w * (count / self.topology.n) for replica, count in held]).sum(0)

    def consensus(self, mean: Tensor) -> float:
        """Root mean square distance of the nodes' w from their mean."""
        squares = [count * float((replica.w - mean).square().sum()) for replica, count in self.replicas()]
        return float((sum(squares) / self.topology.n) ** 0.5)

    def client_frames(self, t: int, w: Tensor, nodes: Sequence[int]) -> tuple[dict[int, bytes], dict[int, str]]:
        """The frames that the nodes at w would send to a server."""
        return encode_updates([self.clients[node] for node in nodes], self.channel, w, t=t)

    def partial_bytes(self) -> int:
        """Bytes of one partial sum on a tree: b numbers in f32."""
        return self._peer_bytes(self.channel.b)

    def exchange_bytes(self) -> int:
        """Bytes of one gossip message: the sums of updates and displacements, 2b numbers, with their weights."""
        return self._peer_bytes(2 * self.channel.b + 2)

    def _peer_bytes(self, numbers: int) -> int:
        header = self.channel.header(1, "update")
        return wire.frame_size(replace(header, codec="f32", kind="peer", d=max(header.d, numbers), b=numbers))

    def digest(self) -> str:
        """SHA-256 of the mean of all nodes' w."""
        return digest(self.mean_replica())

    def new_replica(self) -> Replica:
        """A replica at w0 with an optimiser of its own."""
        return Replica(self.w0, optimizer=copy.deepcopy(self.optimizer), channel=self.channel)


def run_mesh(mesh: Mesh, *, rounds: int, observer: Observer | None = None) -> None:
    """Rounds t+1..T; a partition is warned of once, when it first happens."""
    watch = observer or Observer()
    warned = False
    for t in range(mesh.t + 1, rounds + 1):
        if watch.stop:
            return
        started = time.perf_counter()
        alive, down = mesh.failures.strike(t, mesh.topology)
        parts = [part for part in alive.components() if int(part[0]) not in down]
        if len(parts) > 1 and not warned:
            warned = True
            _warn(t, parts)
        traffic = Traffic(np.zeros(mesh.topology.n, dtype=np.int64))
        refused = mesh.step(t, alive, parts, traffic)
        mesh.t = t
        mesh.bytes_per_node += traffic.per_node
        evaluated = t % mesh.evaluate_every == 0 or t == rounds
        watch.on_round(_record(mesh, t, parts, traffic, refused, started, evaluated=evaluated))


def _warn(t: int, parts: list[Ints]) -> None:
    sizes = ", ".join(str(len(part)) for part in parts[:5])
    warnings.warn(
        f"round {t}: the graph fell into {len(parts)} components of {sizes} nodes; each goes on by itself and they "
        "merge when a link is back",
        stacklevel=3,
    )


def _record(
    mesh: Mesh,
    t: int,
    parts: list[Ints],
    traffic: Traffic,
    refused: dict[int, str],
    started: float,
    *,
    evaluated: bool,
) -> MeshRecord:
    mean = mesh.mean_replica()
    mesh.average.add(mean)
    present = sum(len(part) for part in parts)
    return MeshRecord(
        round=t,
        metrics=dict(mesh.evaluate(mesh.model_vector)) if evaluated else {},
        bytes_up=traffic.up,
        bytes_down=traffic.down + traffic.catch_up,
        bytes_catch_up=traffic.catch_up,
        bytes_critical=traffic.critical,
        hops=traffic.hops,
        components=len(parts),
        asked=mesh.topology.n,
        participants=present - len(refused),
        refused=refused,
        dropped=mesh.topology.n - present,
        late=0,
        consensus=mesh.consensus(mean),
        eta_global=mesh.replicas()[0][0].optimizer.eta,
        digest=digest(mean),
        seconds=time.perf_counter() - started,
    )
