"""Exchange: orders out and replies in over a Flower grid, until all have answered or the time is up.

Nodes die and come back.  Without authentication a SuperNode returns under a new node id, while Flower takes its old one
for connected for up to a minute; so nodes that connect while an exchange is open are asked as well, and an order is no
longer waited for once its client has answered from a newer node.  A client counts once, whatever its nodes do: the
session refuses a second answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from logging import WARNING

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log

from desketch.errors import WireError
from desketch.integrations.flower import record
from desketch.session.server import Outcome, ServerSession

__all__ = ["Ask", "Exchange", "message"]

_TRIES = 3  # orders to one node in one exchange: hello, what it misses, and once more for luck
_LOOK_SECONDS = 1.0  # how often to look for nodes that have just connected


class Ask(Enum):
    """What an order asks for, after coming up to date."""

    TRAIN = MessageType.TRAIN
    EVALUATE = MessageType.EVALUATE
    NOTHING = "nothing"


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
    ask: Ask = Ask.TRAIN
    private: bool = False
    newcomers: bool = False
    _pending: dict[str, int] = field(default_factory=dict)  # message -> node
    _tries: dict[int, int] = field(default_factory=dict)
    _looked: float = field(default_factory=time.monotonic)

    def run(self, orders: list[Message]) -> list[Message]:
        """Send the orders and hand what is answered to the session; stale nodes are asked again.

        Returns the replies that did what was asked.
        """
        deadline = time.monotonic() + self.seconds
        done: list[Message] = []
        self._send(orders)
        while self._pending:
            replies = {self._pending.pop(r.metadata.reply_to_message_id): r for r in self._pull()}
            again = [node for node, reply in replies.items() if self._again(node, reply, done)]
            self._forget_the_superseded()
            self._send([message(self.session, node, self.ask, self.seconds) for node in again + self._just_connected()])
            if self._pending and not replies:
                if time.monotonic() > deadline:
                    return done
                time.sleep(self.poll_seconds)
        return done

    def _pull(self) -> list[Message]:
        return list(self.grid.pull_messages(list(self._pending)))

    def _send(self, orders: list[Message]) -> None:
        names = self.grid.push_messages(orders) if orders else []
        for order, name in zip(orders, names, strict=False):  # Flower returns fewer names when it refuses messages
            node = order.metadata.dst_node_id
            self._tries[node] = self._tries.get(node, 0) + 1
            if name:
                self._pending[name] = node

    def _again(self, node: int, reply: Message, done: list[Message]) -> bool:
        """Take a reply in; whether its node is to be asked again."""
        may = self._tries[node] < _TRIES
        crashed = reply.has_error() and reply.error.code == ErrorCode.CLIENT_APP_CRASHED
        if crashed and may and not self.private:
            return True  # the ClientApp died, its SuperNode did not: nothing was answered
        outcome = self._take(node, reply)
        if outcome is Outcome.DONE:
            done.append(reply)
        return outcome is Outcome.AGAIN and may

    def _take(self, node: int, reply: Message) -> Outcome:
        """Hand a reply to the session; Flower's own errors and foreign records are refused by name."""
        try:
            if reply.has_error():
                raise WireError(f"Flower: {reply.error.reason}")
            return self.session.receive(node, record.read(reply), beside=record.size(reply))
        except WireError as error:
            if self.ask is Ask.EVALUATE:
                log(WARNING, "node %d did not evaluate: %s", node, error)
                return Outcome.REFUSED
            return self.session.refuse(node, str(error))

    def _forget_the_superseded(self) -> None:
        homes = set(self.session.homes(self._tries))
        self._pending = {name: node for name, node in self._pending.items() if node in homes}

    def _just_connected(self) -> list[int]:
        if not (self.newcomers and self._pending) or time.monotonic() < self._looked + _LOOK_SECONDS:
            return []
        self._looked = time.monotonic()
        return self.session.homes(sorted(set(self.grid.get_node_ids()) - set(self._tries)))


def message(session: ServerSession, node: int, ask: Ask, seconds: float) -> Message:
    """The order for a node as a Flower message, which expires after ``seconds``."""
    evaluate = ask is Ask.EVALUATE
    return Message(
        content=record.content(session.order(node, train=ask is Ask.TRAIN)),
        message_type=MessageType.EVALUATE if evaluate else MessageType.TRAIN,
        dst_node_id=node,
        group_id=str(session.t if evaluate else session.t + 1),
        ttl=seconds,
    )
