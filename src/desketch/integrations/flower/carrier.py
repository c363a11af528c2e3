"""GridCarrier: a Flower grid as a carrier of sessions.

A grid is polled, in batches: orders wait until the next look at what has come, and leave together.  A reply is told
by the message it answers, so that one to a superseded order is dropped here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from desketch.errors import WireError
from desketch.integrations.flower import record
from desketch.session.carrier import Arrival, Carrier
from desketch.session.server import ServerSession

__all__ = ["GridCarrier"]

POLL_SECONDS = 0.2


class GridCarrier(Carrier):
    """Carries a session over a grid, which is asked every ``poll_seconds`` for what has come."""

    def __init__(self, grid: Grid, session: ServerSession, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.grid, self.session, self.poll_seconds = grid, session, poll_seconds
        self._type = MessageType.TRAIN
        self._orders: list[Message] = []  # not pushed yet
        self._pending: dict[str, int] = {}  # message -> node
        self._refused: list[int] = []

    def nodes(self) -> list[int]:
        """The SuperNodes that Flower takes for connected."""
        return list(self.grid.get_node_ids())

    @contextmanager
    def sending(self, message_type: str) -> Iterator[None]:
        """Let the orders of the block reach the ClientApp's function for this type."""
        before, self._type = self._type, message_type
        try:
            yield
        finally:
            self._type = before

    def send(self, node: int, data: bytes, deadline: float) -> None:
        """Queue an order; its message expires at the deadline."""
        evaluate = self._type == MessageType.EVALUATE
        order = Message(
            content=record.content(data),
            message_type=self._type,
            dst_node_id=node,
            group_id=str(self.session.t if evaluate else self.session.t + 1),
            ttl=max(deadline - self.now(), 1.0),
        )
        self._pending = {name: other for name, other in self._pending.items() if other != node}
        self._orders.append(order)

    def arrivals(self, timeout: float) -> list[Arrival]:
        """Push what is queued, then look until something has come."""
        self._push()
        end = self.now() + timeout
        while not (came := self._pull()) and (left := end - self.now()) > 0:
            time.sleep(min(self.poll_seconds, left))
        return came

    def now(self) -> float:
        """Seconds of this process's clock."""
        return time.monotonic()

    def _push(self) -> None:
        orders, self._orders = self._orders, []
        names = list(self.grid.push_messages(orders)) if orders else []
        names += [""] * (len(orders) - len(names))  # Flower returns fewer names when it refuses messages
        for order, name in zip(orders, names, strict=True):
            if name:
                self._pending[name] = order.metadata.dst_node_id
            else:
                self._refused.append(order.metadata.dst_node_id)

    def _pull(self) -> list[Arrival]:
        came = [Arrival(node=node, error="Flower did not take the order") for node in self._refused]
        self._refused = []
        for reply in self.grid.pull_messages(list(self._pending)) if self._pending else []:
            node = self._pending.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                came.append(_arrival(node, reply))
        return came


def _arrival(node: int, reply: Message) -> Arrival:
    """A reply as the session takes it; Flower's own errors and foreign records are told by name."""
    if reply.has_error():
        crashed = reply.error.code == ErrorCode.CLIENT_APP_CRASHED  # its SuperNode did not: nothing was answered
        return Arrival(node=node, error=f"Flower: {reply.error.reason}", again=crashed, carried=reply)
    try:
        return Arrival(node=node, data=record.read(reply), beside=record.size(reply), carried=reply)
    except WireError as error:
        return Arrival(node=node, error=str(error), carried=reply)
