"""ElasticOuter: the outer step between sites that come and go, counted by torchft's lighthouse.

    torchft_lighthouse --min_replicas 1 ...                                                    # anywhere all can reach
    outer = ElasticOuter(model, optimizer, lighthouse="http://host:29510", every=20, compression=10, key=Key(7))

A round begins with a quorum: who is there.  One that joins, or was away, takes theta, M and the round of another first
and brings no update to that round.  If a site is lost in the middle of a round, nobody has applied it; the others
repeat it among themselves, from the updates they still hold.  Wires without memory only: what a memory still owes is
lost with its site.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import AllgatherOptions, AllToAllOptions, TCPStore
from torchft import Manager, ProcessGroupGloo

from desketch.errors import ConfigError, RunError
from desketch.integrations.torch.agreement import require_equal
from desketch.integrations.torch.exchange import Buffer, Exchange
from desketch.integrations.torch.methods import Dense
from desketch.integrations.torch.methods.base import Moved, Pieces
from desketch.integrations.torch.outer import SketchedOuter
from desketch.integrations.torch.round import JOINED, Report, exchange_update
from desketch.wire import Wire

__all__ = ["ElasticOuter"]

_TRIES = 10  # quorums in which a round may fail before it is given up


class ElasticOuter(SketchedOuter):
    """`SketchedOuter` without a fixed world; its other arguments are that class', but for group, site and overlap.

    Args:
        model: as in `SketchedOuter`; so is ``optimizer``.
        lighthouse: the address of torchft's lighthouse.
        name: of this site, for the lighthouse's page.
        address: under which the other sites reach this machine.
        patience: seconds a collective or a quorum waits for the others.
        least: sites without which no round is made.

    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        *,
        lighthouse: str,
        name: str = "site",
        address: str | None = None,
        patience: float = 60.0,
        least: int = 1,
        **settings: Any,
    ) -> None:
        for refused in ("group", "site", "overlap", "budget"):
            if settings.get(refused):
                raise ConfigError(f"{refused} needs a fixed world, which an elastic outer step has not; leave it out")
        self._waits, self._just_joined = timedelta(seconds=patience), False
        self._names = lighthouse, name, address or socket.gethostname(), least
        super().__init__(model, optimizer, **settings)
        if not isinstance(self.wire, Wire | Dense):
            self.manager.shutdown(wait=False)
            raise ConfigError(f"{self.wire!r} has a memory, which would be lost with its site; take a sketch or Dense")
        self.manager.register_state_dict_fn("outer", self._take_over, self._hand_over)

    def _meet(self, group: dist.ProcessGroup | None) -> Exchange:
        lighthouse, name, address, least = self._names
        self._store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
        pg = ProcessGroupGloo(timeout=self._waits)
        self.manager = Manager(
            pg=pg,
            load_state_dict=None,
            state_dict=None,
            min_replica_size=least,
            use_async_quorum=False,
            init_sync=False,
            timeout=self._waits,
            quorum_timeout=self._waits,
            rank=0,
            world_size=1,
            store_addr=address,
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            hostname=address,
            replica_id=name,
        )
        return ManagedExchange(pg)

    def close(self) -> None:
        """Leave; the others go on without this site."""
        self.manager.shutdown(wait=False)

    def synchronise(self, source: int = 0) -> None:
        """Refused: the quorum does it."""
        raise RunError("an elastic outer step synchronises whoever joins by itself; leave synchronise() out")

    def _agree(self) -> None:
        return  # the first round of a quorum does

    def _blocking(self) -> Tensor:
        """Rounds among whoever is there, until one is complete."""
        failure: Exception | None = None
        for _ in range(_TRIES):
            self._just_joined, u = False, None
            try:
                self.manager.start_quorum()
            except (RuntimeError, TimeoutError) as error:  # nobody answered in time: ask again
                failure = error
                continue
            try:
                u = self._round()
            except RunError as error:
                if error.__cause__ is None:  # not the network: arguments that differ, or no update that can be used
                    raise
                failure = error
                self.manager.report_error(error)
            if self.manager.should_commit():
                if u is None:
                    self.theta.copy_(self.flat.flatten().cpu())
                else:
                    self.nesterov.step(self.theta, u)
                self.round += 1
                return self.theta
        raise RunError(
            f"{_TRIES} quorums in a row failed, nothing was applied; see that the sites reach each other"
        ) from failure

    def _round(self) -> Pieces | None:
        """The mean update of a quorum; None for a site that is alone, whose theta follows its inner steps."""
        assert isinstance(self.exchange, ManagedExchange)
        if (error := self.manager.errored()) is not None:
            raise RunError(f"the quorum of round {self.round} could not be made ({error})") from error
        rank = self.manager.participating_rank()
        self.exchange.become(0 if rank is None else rank, self.manager.num_participants())
        if self.exchange.size == 1:
            return None
        require_equal(self._arguments(), self.exchange)
        mine = self._report(Moved(self.flat, self.theta))
        if self._just_joined:
            mine = Report(mine.t, torch.zeros_like(self.theta), mine.said, JOINED)
        u, skipped = exchange_update(self.method, self.theta, mine, self.exchange)
        self._skipped += skipped
        return u

    def _hand_over(self) -> dict[str, Any]:
        M = self.nesterov.M
        return {"theta": self.theta, "round": self.round, "count": self.count, **({} if M is None else {"M": M})}

    def _take_over(self, state: Mapping[str, Any]) -> None:
        """Another site's theta, M and round, and nothing of one's own."""
        with torch.no_grad():
            self.theta.copy_(state["theta"])
        self.nesterov.load_state_dict({"M": state["M"]} if "M" in state else {})
        self.round, self.count = int(state["round"]), int(state["count"])
        self.flat.load(self.theta)
        self._just_joined = True


class ManagedExchange(Exchange):
    """The collectives of a process group that is made anew in every quorum."""

    def __init__(self, pg: Any) -> None:
        self._pg, self.group, self.device = pg, None, torch.device("cpu")
        self.rank, self.size, self.sent, self.received = 0, 2, 0, 0

    def become(self, rank: int, size: int) -> None:
        """One's place among those who are there."""
        self.rank, self.size = rank, size

    def _all_gather(self, mine: bytes) -> list[Buffer]:
        local = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        everyone = [torch.empty_like(local) for _ in range(self.size)]
        self._pg.allgather([everyone], [local], AllgatherOptions()).wait()
        return [row.numpy().tobytes() for row in everyone]

    def _all_to_all(self, outgoing: list[bytes], *, mine: int) -> list[Buffer]:
        source = torch.frombuffer(bytearray(b"".join(outgoing)), dtype=torch.uint8)
        target = torch.empty(mine * self.size, dtype=torch.uint8)
        sizes = [len(part) for part in outgoing]
        self._pg.alltoall_base(target, source, [mine] * self.size, sizes, AllToAllOptions()).wait()
        received = target.numpy().tobytes()
        return [received[i * mine : (i + 1) * mine] for i in range(self.size)]
