"""Exchange: orders out and replies in over a carrier, until all have answered or the time is up.

Nodes die and come back, and a client may return under a new node while the carrier takes its old one for connected.  So
nodes that connect while an exchange is open are asked as well, and an order is no longer waited for once its client has
answered from a newer node.  A client counts once, whatever its nodes and its carrier do: the session refuses a second
answer, ignores a repeated one, and ignores one that comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from logging import Logger, getLogger
from math import inf

from desketch.session.carrier import Arrival, Carrier
from desketch.session.server import Outcome, ServerSession

__all__ = ["LOOK_SECONDS", "TICK", "Ask", "Exchange"]

_TRIES = 4  # different orders to one node in one exchange: in short, in full, what it misses, and once more for luck
TICK = 0.001  # seconds: no clock is read more finely, and waiting for less might not move it
LOOK_SECONDS = 1.0  # how often to look for nodes that have just connected


class Ask(Enum):
    """What an order asks for, after coming up to date."""

    TRAIN = "train"
    EVALUATE = "evaluate"  # the engine's own: to the session, who only came up to date
    NOTHING = "nothing"


@dataclass(kw_only=True)
class Exchange:
    """One open exchange; ``seconds`` is how long it waits.

    A ``private`` order that failed is not given again.  ``newcomers`` welcomes nodes that connect meanwhile.  Where
    ``repeat_after`` is set, an order without an answer is sent again after so many seconds, then after twice as many:
    for carriers that lose messages.  (A client answers a repeated order with the bytes it answered before.)
    """

    carrier: Carrier
    session: ServerSession
    seconds: float
    ask: Ask = Ask.TRAIN
    private: bool = False
    newcomers: bool = False
    repeat_after: float | None = None
    logger: Logger = field(default_factory=lambda: getLogger("desketch"))
    _pending: dict[int, tuple[float, float]] = field(default_factory=dict)  # node -> when to send again, and the pause
    _tries: dict[int, int] = field(default_factory=dict)
    _soonest: float = inf  # no order is to be sent again before

    def run(self, nodes: Iterable[int]) -> list[Arrival]:
        """Ask the nodes and hand what they answer to the session; stale ones are asked again.

        Returns the answers that did what was asked.
        """
        self._deadline = self.carrier.now() + self.seconds
        self._looked = self.carrier.now()
        done: list[Arrival] = []
        self._ask(nodes)
        while self._pending:
            left = self._deadline - self.carrier.now()
            came = self.carrier.arrivals(max(TICK, min(left, LOOK_SECONDS, self._soonest - self.carrier.now())))
            again = [arrival.node for arrival in came if self._take(arrival, done)]
            self._forget_the_superseded()
            if not came and self.carrier.now() >= self._deadline:
                break
            self._ask(again + self._just_connected())
            self._repeat()
        return done

    def _ask(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._tries[node] = self._tries.get(node, 0) + 1
            self._send(node, self.repeat_after or self.seconds)

    def _send(self, node: int, pause: float) -> None:
        self.carrier.send(node, self.session.order(node, train=self.ask is Ask.TRAIN), self._deadline)
        when = self.carrier.now() + pause
        self._pending[node] = when, pause
        if self.repeat_after is not None:
            self._soonest = min(self._soonest, when)

    def _repeat(self) -> None:
        if self.carrier.now() < self._soonest:  # always, where nothing is repeated
            return
        self._soonest = inf
        for node, (when, pause) in list(self._pending.items()):
            if when <= self.carrier.now() < self._deadline:
                self._send(node, 2 * pause)
            else:
                self._soonest = min(self._soonest, when)

    def _take(self, arrival: Arrival, done: list[Arrival]) -> bool:
        """Take an answer in; whether its node is to be asked again."""
        node = arrival.node
        may = self._tries.get(node, 0) < _TRIES
        if arrival.error is not None:
            outcome = Outcome.AGAIN if arrival.again and not self.private else self._refuse(node, arrival.error)
        else:
            outcome = self.session.receive(node, arrival.data, beside=arrival.beside)
        if outcome is Outcome.IGNORED:
            return False
        self._pending.pop(node, None)
        if outcome is Outcome.DONE:
            done.append(arrival)
        if outcome is Outcome.AGAIN and not may:
            self._refuse(node, arrival.error or f"it could not follow {_TRIES} orders in one round")
        return outcome is Outcome.AGAIN and may

    def _refuse(self, node: int, reason: str) -> Outcome:
        if self.ask is Ask.EVALUATE:
            self.logger.warning("node %d did not evaluate: %s", node, reason)
            return Outcome.REFUSED
        return self.session.refuse(node, reason)

    def _forget_the_superseded(self) -> None:
        if self.session.all_alone:
            return
        homes = set(self.session.homes(self._tries))
        self._pending = {node: when for node, when in self._pending.items() if node in homes}

    def _just_connected(self) -> list[int]:
        if not (self.newcomers and self._pending) or self.carrier.now() < self._looked + LOOK_SECONDS:
            return []
        self._looked = self.carrier.now()
        return self.session.homes(sorted(set(self.carrier.nodes()) - set(self._tries)))
