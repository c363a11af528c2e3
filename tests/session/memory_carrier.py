"""A carrier in this process, on a clock of its own, that does to messages what networks do to them."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field

from desketch.session.carrier import Arrival, Carrier


@dataclass(kw_only=True)
class Faults:
    """Shares of messages, each way: lost, delivered twice, delayed (hence reordered), cut, one bit flipped."""

    lost: float = 0.0
    twice: float = 0.0
    delayed: float = 0.0
    cut: float = 0.0
    flipped: float = 0.0
    longest: float = 3.0
    seed: int = 0

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def carry(self, data):
        """What becomes of a message: (seconds, bytes) for each copy that arrives."""
        copies = 1 + (self.rng.random() < self.twice)
        for _ in range(copies):
            if self.rng.random() < self.lost:
                continue
            yield self._seconds(), self._bytes(data)

    def _seconds(self):
        return self.rng.uniform(0.0, self.longest) if self.rng.random() < self.delayed else 0.01

    def _bytes(self, data):
        if self.rng.random() < self.cut:
            data = data[: self.rng.randrange(len(data) + 1)]
        if data and self.rng.random() < self.flipped:
            place = self.rng.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << self.rng.randrange(8)]) + data[place + 1 :]
        return data


@dataclass
class MemoryCarrier(Carrier):
    """Nodes that answer at once, on a clock that moves only while somebody waits.

    ``parties`` maps a node to anything with ``answer(bytes) -> bytes``, or None: connected, but it never answers.
    ``hooks`` are called with the carrier when the clock passes their time: for restarts in the middle of things.
    """

    parties: dict
    faults: Faults = field(default_factory=Faults)
    hooks: list = field(default_factory=list)  # (when, function)
    clock: float = 0.0
    sent: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    def __post_init__(self):
        self._events, self._count = [], itertools.count()
        self._ready = []
        for when, hook in self.hooks:
            self._at(when, lambda hook=hook: hook(self))

    def nodes(self):
        return sorted(self.parties)

    def now(self):
        return self.clock

    def send(self, node, data, deadline):
        self.sent.append((node, data))
        for seconds, copy in self.faults.carry(data):
            self._at(self.clock + seconds, lambda copy=copy: self._deliver(node, copy))

    def arrivals(self, timeout):
        end = self.clock + timeout
        while not self._ready and self._events and self._events[0][0] <= end:
            when, _, event = heapq.heappop(self._events)
            self.clock = max(self.clock, when)
            event()
        if not self._ready:
            self.clock = max(self.clock, end)
        ready, self._ready = self._ready, []
        return ready

    def _deliver(self, node, data):
        party = self.parties.get(node)
        if party is None:
            return
        try:
            reply = party.answer(data)
        except Exception as error:  # what an engine's own process would log
            if type(error).__name__ != "WireError":
                raise
            return
        self.answers.append((node, reply))
        for seconds, copy in self.faults.carry(reply):
            arrival = Arrival(node=node, data=copy)
            self._at(self.clock + seconds, lambda arrival=arrival: self._ready.append(arrival))

    def _at(self, when, event):
        heapq.heappush(self._events, (when, next(self._count), event))
