"""The server's half of a round: average what arrived, broadcast, and apply the broadcast like everybody else.

Δw~^t = 1/N Σ_c enc_t(Δw_c(t))          (eta_global and the optimiser act after decoding, on every replica alike)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from desketch.errors import WireError
from desketch.fed.channel import Channel, ServerStep
from desketch.fed.optimizers import ServerOptimizer
from desketch.fed.replica import CatchUp, Replica, ReplicaLog

__all__ = ["Server", "aggregate"]


def aggregate(replica: Replica, log: ReplicaLog, frames: Mapping[int, bytes]) -> ServerStep:
    """One round of the server whose replica is at version t - 1; bad frames are refused by name, the round goes on.

    A broadcast that would leave w or the optimiser without finite numbers is never logged: the round is void.
    """
    t = replica.version + 1
    step = replica.channel.aggregate(t, frames)
    try:
        replica.apply(t, step.broadcast)
    except WireError as error:
        step = replace(step, broadcast=None, participants=(), void=f"broadcast: {error}")
        replica.apply(t, None)
    log.append(t, step.broadcast)
    return step


class Server:
    """A replica, its log, and the version every client was last brought to."""

    def __init__(self, w0: Tensor, *, optimizer: ServerOptimizer, channel: Channel) -> None:
        self.replica = Replica(w0, optimizer=optimizer, channel=channel)
        self.log = ReplicaLog(d=channel.d)
        self.versions: dict[int, int] = {}

    def catch_up(self, client: int) -> CatchUp:
        """What the client needs to reach the server's version; it is then taken to be there."""
        package = self.log.package(self.versions.get(client, 0), self.replica.checkpoint)
        self.versions[client] = package.upto
        return package

    def catch_up_size(self, client: int) -> int:
        """The bytes of `catch_up`, where nobody reads them; the client is taken to be there all the same."""
        size = self.log.package_size(self.versions.get(client, 0), self.replica.checkpoint_size)
        self.versions[client] = self.replica.version
        return size

    def step(self, frames: Mapping[int, bytes]) -> ServerStep:
        """`aggregate` on this server."""
        return aggregate(self.replica, self.log, frames)

    def state_dict(self) -> dict[str, Any]:
        """Replica, log, versions and channel state."""
        return {
            "replica": self.replica.state_dict(),
            "log": self.log.state_dict(),
            "versions": {str(client): version for client, version in self.versions.items()},
            "channel": self.replica.channel.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.replica.load_state_dict(state["replica"])
        self.log.load_state_dict(state["log"])
        self.versions = {int(client): int(version) for client, version in state["versions"].items()}
        self.replica.channel.load_state_dict(state["channel"])
