"""GossipMesh: every node averages with its neighbours only, and keeps its own, nearly equal replica.

A node sends the sketch of its update and the sketch of its displacement, 2b numbers and its weight per hop:

    y_i  ->  gossip estimate of the mean of R_t Δ_j         fed to the node's own server optimiser
    z_i  ->  gossip estimate of the mean of R_t (w_j - w0)  w_i += (1/(1+alpha)) R_tᵀ (z_i - R_t (w_i - w0))

The first alone would let replicas drift apart by what gossip leaves over each round.  The second is, by linearity, an
unbiased step from w_i to the mean of all w_j; 1/(1+alpha) is the step at which the disagreement it adds never exceeds
what it removes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from desketch.core.vectors import norm
from desketch.fed.replica import Replica
from desketch.fed.update import Update
from desketch.mesh.averaging import GossipResult, gossip, hops_for
from desketch.mesh.rounds import Mesh, Traffic
from desketch.mesh.topology import Topology
from desketch.sketches import Sketch

__all__ = ["GossipMesh"]

Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class GossipMesh(Mesh):
    """Every node has a replica of its own; ``hops=None`` takes as many as leave ``tolerance`` of the disagreement."""

    tolerance: float = 0.01
    hops: int | None = None

    def start(self) -> None:
        """Give every node its own replica of w0."""
        self.nodes = [self.new_replica() for _ in range(self.topology.n)]
        self.exchanges = self.hops or hops_for(self.topology.mixing, self.tolerance)

    def replicas(self) -> list[tuple[Replica, int]]:
        """One replica a node."""
        return [(replica, 1) for replica in self.nodes]

    def step(self, t: int, alive: Topology, parts: list[Ints], traffic: Traffic) -> dict[int, str]:
        """Train from each node's own w, gossip, and apply each node's own estimate."""
        present = sorted(node for part in parts for node in part.tolist())
        frames: dict[int, bytes] = {}
        refused: dict[int, str] = {}
        for node in present:
            sent, bad = self.client_frames(t, self.nodes[node].w, [node])
            frames |= sent
            refused |= bad
        batch = self.channel.decode_updates(t, frames)
        R = self.channel.sketch_at(t)
        displacement = torch.stack([R.sketch(replica.w - self.w0) for replica in self.nodes]).numpy()
        senders = list(batch.senders)
        updates = np.zeros_like(displacement)
        weights = np.zeros(self.topology.n)
        updates[senders], weights[senders] = batch.values, batch.weights
        mixed_updates = self._gossip(updates, weights, alive)
        mixed_displacement = self._gossip(displacement, np.ones(self.topology.n), alive)
        self._count(alive, traffic)
        for node in present:
            y = torch.from_numpy(mixed_updates.means[node]).float()
            z = torch.from_numpy(mixed_displacement.means[node] - displacement[node]).float()
            replica = self.nodes[node]
            replica.optimizer.apply(replica.w, Update(R.desketch(y), norm(y), self.channel.b))
            self.correct(replica, R, z)
        for replica in self.nodes:
            replica.version = t
        return refused | dict(batch.refused)

    def correct(self, replica: Replica, R: Sketch, z: Tensor) -> None:
        """Move a node towards the mean replica by the de-sketched difference."""
        R.desketch_add_(replica.w, z, 1.0 / (1.0 + R.alpha))

    def _gossip(self, values: npt.NDArray[Any], weights: npt.NDArray[Any], alive: Topology) -> GossipResult:
        return gossip(values, weights, alive, hops=self.exchanges)

    def _count(self, alive: Topology, traffic: Traffic) -> None:
        """Every hop sends one message over each edge, both ways."""
        sent = alive.degrees * self.exchange_bytes() * self.exchanges
        traffic.per_node += sent
        traffic.up = int(sent.sum())
        traffic.hops = self.exchanges
        traffic.critical = int(alive.degrees.max()) * self.exchange_bytes() * self.exchanges

    def nodes_state(self) -> dict[str, Any]:
        """Every node's replica."""
        return {"replicas": [replica.state_dict() for replica in self.nodes]}

    def load_nodes(self, state: dict[str, Any]) -> None:
        """Continue from `nodes_state`."""
        for replica, saved in zip(self.nodes, state["replicas"], strict=True):
            replica.load_state_dict(saved)
