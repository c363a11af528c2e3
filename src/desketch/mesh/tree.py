"""TreeMesh: the exact mean over a spanning tree, 2 x depth hops, one message per edge and direction.

Leaves send their frame to their parent; an inner node sends the frames of its subtree, or their one partial sum in f32
once that is smaller; the root encodes the mean exactly as a server would, and the frame runs down the tree.  So
replicas are those of the server mode (to the rounding of a sum), whatever the graph.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from desketch.fed.replica import Replica
from desketch.mesh.averaging import tree_mean
from desketch.mesh.lineage import Branch, meet
from desketch.mesh.rounds import Mesh, Traffic
from desketch.mesh.topology import SpanningTree, Topology

__all__ = ["TreeMesh"]

Ints = npt.NDArray[np.int64]


class TreeMesh(Mesh):
    """Nodes hold branches; the nodes of a component are on one branch after each round."""

    def start(self) -> None:
        """Put every node on one branch at w0."""
        self.branches: list[Branch] = [Branch(self.new_replica())] * self.topology.n

    def replicas(self) -> list[tuple[Replica, int]]:
        """The branches' replicas."""
        return [(branch.replica, count) for branch, count in Counter(self.branches).items()]

    def step(self, t: int, alive: Topology, parts: list[Ints], traffic: Traffic) -> dict[int, str]:
        """Let every component come together, train, average over its tree and apply its broadcast."""
        refused: dict[int, str] = {}
        joined = [self._join(part.tolist(), traffic) for part in parts]
        for branch, part in zip(joined, parts, strict=True):
            tree = alive.spanning_tree(part)
            frames, bad = self.client_frames(t, branch.replica.w, part.tolist())
            broadcast, named = self._average(t, frames, tree, traffic)
            refused |= bad | named
            branch.apply(t, broadcast)
            for node in part.tolist():
                self.branches[node] = branch
        for branch in set(self.branches):
            branch.replica.version = t  # nodes that are down miss the round; their branch's log knows what they miss
        if len(set(self.branches)) == 1:
            self.branches[0].forget()
        return refused

    def _join(self, nodes: list[int], traffic: Traffic) -> Branch:
        """The branch on which a component goes on, a fresh fork if others stay behind; counts the catch-up."""
        weights: dict[Branch, float] = {}
        for node in nodes:
            weight = getattr(self.clients[node], "weight", 1.0)
            weights[self.branches[node]] = weights.get(self.branches[node], 0.0) + weight
        branch = meet(weights)
        for node in nodes:
            traffic.catch_up += (size := branch.missing_bytes(self.branches[node]))
            traffic.per_node[node] += size
        holders = sum(held is branch for held in self.branches)
        inside = sum(self.branches[node] is branch for node in nodes)
        return branch.fork() if holders > inside else branch

    def _average(
        self, t: int, frames: dict[int, bytes], tree: SpanningTree, traffic: Traffic
    ) -> tuple[bytes | None, dict[int, str]]:
        """Convergecast and broadcast over the tree; returns the broadcast and the refused."""
        batch = self.channel.decode_updates(t, frames)
        climb = self._count_convergecast(frames, tree, traffic)
        traffic.hops = max(traffic.hops, 2 * tree.depth)
        if not batch.senders:
            return None, dict(batch.refused)
        values = np.zeros((self.topology.n, self.channel.b))
        weights = np.zeros(self.topology.n)
        senders = list(batch.senders)
        values[senders], weights[senders] = batch.values, batch.weights
        mean, _ = tree_mean(values, weights, tree)
        broadcast = self.channel.encode_broadcast(t, torch.from_numpy(mean).float())
        parents, children = np.unique(tree.parent[1:], return_counts=True)
        traffic.per_node[parents] += children * len(broadcast)
        traffic.down += len(broadcast) * (len(tree.nodes) - 1)
        traffic.critical = max(traffic.critical, climb + tree.depth * len(broadcast))
        return broadcast, dict(batch.refused)

    def _count_convergecast(self, frames: dict[int, bytes], tree: SpanningTree, traffic: Traffic) -> int:
        """Count what goes up each tree edge: the subtree's frames, or one f32 partial sum when that is smaller.

        Returns the bytes that follow one another: the largest message of each level.
        """
        partial = self.partial_bytes()
        bundle = {node: len(frames.get(node, b"")) for node in tree.nodes.tolist()}
        largest = np.zeros(tree.depth + 1, dtype=np.int64)
        upwards = (column[:0:-1].tolist() for column in (tree.nodes, tree.parent, tree.level))
        for node, parent, level in zip(*upwards, strict=True):
            size = min(bundle[node], partial)
            bundle[parent] += size
            traffic.per_node[node] += size
            traffic.up += size
            largest[level] = max(largest[level], size)
        return int(largest.sum())

    def nodes_state(self) -> dict[str, Any]:
        """The branches, as a list with parents by index, and each node's branch."""
        ordered = self._lineage()
        index = {branch: i for i, branch in enumerate(ordered)}
        return {
            "nodes": [index[branch] for branch in self.branches],
            "branches": [
                {
                    "replica": branch.replica.state_dict(),
                    "parents": [index[parent] for parent in branch.parents],
                    "log_bytes": branch.log_bytes,
                }
                for branch in ordered
            ],
        }

    def load_nodes(self, state: dict[str, Any]) -> None:
        """Continue from `nodes_state`."""
        branches: list[Branch] = []
        for saved in state["branches"]:
            replica = self.new_replica()
            replica.load_state_dict(saved["replica"])
            parents = tuple(branches[i] for i in saved["parents"])
            branches.append(Branch(replica, parents, log_bytes=int(saved["log_bytes"])))
        self.branches = [branches[i] for i in state["nodes"]]

    def _lineage(self) -> list[Branch]:
        """Every branch that still matters, parents before children."""
        ordered: list[Branch] = []
        pending = list(dict.fromkeys(self.branches))
        while pending:
            branch = pending[-1]
            unseen = [parent for parent in branch.parents if parent not in ordered]
            if unseen:
                pending.extend(unseen)
            else:
                pending.pop()
                if branch not in ordered:
                    ordered.append(branch)
        return ordered
