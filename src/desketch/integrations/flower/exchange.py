"""Exchange: orders out and replies in over a Flower grid, until all have answered or the time is up.

Nodes die and come back.  Without authentication a SuperNode returns under a new node id, while Flower takes its old one
for connected for up to a minute; so nodes that connect while an exchange is open are asked as well, and an order is no
longer waited for once its client has answered from a newer node.  A client counts once, whatever its nodes do: the
session refuses a second answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from desketch.errors import WireError
from desketch.integrations.flower import record
from desketch.session.server import Outcome, ServerSession

__all__ = ["Exchange", "message", "take"]

_TRIES = 3  # orders to one node in one exchange: hello, what it misses, and once more for luck
_LOOK_SECONDS = 1.0  # how often to look for nodes that have just connected


@dataclass
class Exchange:
    """One open exchange; ``seconds`` is how long it waits and how long its messages live.

    ``private`` orders are given once: a repeated answer would be a second release.  ``newcomers`` welcomes nodes that
    connect meanwhile.
    """

    grid: Grid
    session: ServerSession
    seconds: float
    poll_seconds: float
    train: bool = True
    private: bool = False
    newcomers: bool = False
    _pending: dict[str, int] = field(default_factory=dict)  # message -> node
    _tries: dict[int, int] = field(default_factory=dict)
    _looked: float = field(default_factory=time.monotonic)

    def run(self, nodes: list[int]) -> None:
        """Ask the nodes and take in what they answer; stale ones are asked again."""
        deadline = time.monotonic() + self.seconds
        self._send(nodes)
        while self._pending:
            replies = list(self.grid.pull_messages(list(self._pending)))
            again = [node for reply in replies if self._again(node := self._sender(reply), reply)]
            self._forget_the_superseded()
            self._send(again + self._just_connected())
            if self._pending and not replies:
                if time.monotonic() > deadline:
                    return
                time.sleep(self.poll_seconds)

    def _send(self, nodes: list[int]) -> None:
        orders = [message(self.session, node, train=self.train, seconds=self.seconds) for node in nodes]
        names = self.grid.push_messages(orders) if nodes else []
        for node, name in zip(nodes, names, strict=False):  # Flower returns fewer names when it refuses messages
            self._tries[node] = self._tries.get(node, 0) + 1
            if name:
                self._pending[name] = node

    def _sender(self, reply: Message) -> int:
        return self._pending.pop(reply.metadata.reply_to_message_id)

    def _again(self, node: int, reply: Message) -> bool:
        """Take a reply in; whether its node is to be asked again."""
        may = self._tries[node] < _TRIES
        crashed = reply.has_error() and reply.error.code == ErrorCode.CLIENT_APP_CRASHED
        if crashed and may and not self.private:
            return True  # the ClientApp died, its SuperNode did not: nothing was answered
        return take(self.session, node, reply) is Outcome.AGAIN and may

    def _forget_the_superseded(self) -> None:
        homes = set(self.session.homes(self._tries))
        self._pending = {name: node for name, node in self._pending.items() if node in homes}

    def _just_connected(self) -> list[int]:
        if not (self.newcomers and self._pending) or time.monotonic() < self._looked + _LOOK_SECONDS:
            return []
        self._looked = time.monotonic()
        return sorted(set(self.grid.get_node_ids()) - set(self._tries))


def message(session: ServerSession, node: int, *, train: bool, seconds: float) -> Message:
    """The order for a node as a Flower message, which expires after ``seconds``."""
    return Message(
        content=record.content(session.order(node, train=train)),
        message_type=MessageType.TRAIN,
        dst_node_id=node,
        group_id=str(session.t + 1),
        ttl=seconds,
    )


def take(session: ServerSession, node: int, reply: Message) -> Outcome:
    """Hand a node's reply to the session; Flower's own errors and foreign records are refused by name."""
    if reply.has_error():
        return session.refuse(node, f"Flower: {reply.error.reason}")
    try:
        return session.receive(node, record.read(reply))
    except WireError as error:
        return session.refuse(node, str(error))
