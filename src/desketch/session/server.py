"""ServerSession: the server's half of the protocol, bytes in and bytes out, whatever carries them.

It knows which client sits at which node (`Identities` decides who may be which) and what version each client confirmed
(never what it was merely sent), writes its whole state atomically after every round and after every privacy charge, and
resumes from it.  A reply is counted once: by message, by client and by round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from torch import Tensor

from desketch.core.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from desketch.errors import BudgetError, InputError, WireError
from desketch.fed.channel import ServerStep, SketchChannel
from desketch.fed.iterates import Average
from desketch.fed.mechanism import Privacy
from desketch.fed.secrecy import public_facts, signal_facts
from desketch.fed.server import Server
from desketch.privacy.book import LedgerBook
from desketch.session.agreement import Agreement
from desketch.session.identity import Identities
from desketch.session.protocol import NEVER, Order, Reply, State, half
from desketch.session.replay import Payloads
from desketch.session.report import RoundReport
from desketch.session.short import ShortReply, is_short, pack_order
from desketch.session.store import SimulatedStores

__all__ = ["Outcome", "ServerSession"]


class Outcome(Enum):
    """What to do with the node that sent a reply."""

    DONE = "done"
    AGAIN = "again"  # it told what it misses: a second order in the same round will bring it in
    REFUSED = "refused"
    IGNORED = "ignored"  # late, or heard before: carriers repeat, delay and reorder; it is still waited for


@dataclass
class _Tally:
    """What the open round has seen so far."""

    greeted: set[int] = field(default_factory=set)  # nodes that were sent any order
    asked: set[int] = field(default_factory=set)  # nodes that were to train
    heard: set[int] = field(default_factory=set)
    wordy: set[int] = field(default_factory=set)  # nodes whose next order is in full
    orders: dict[tuple[int, bool, bool, bool], bytes] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)  # clients of which a reply was taken in
    frames: dict[int, bytes] = field(default_factory=dict)
    payloads: Payloads | None = None
    refused: dict[str, str] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: list[float] = field(default_factory=list)


class ServerSession:
    """Rounds of a run whose messages somebody else carries."""

    def __init__(
        self,
        agreement: Agreement,
        w0: Tensor,
        *,
        folder: Path | None = None,
        privacy: Privacy | None = None,
        average: Average | None = None,
        identities: Identities | None = None,
        sizes: Mapping[int, float] | None = None,
        stores: SimulatedStores | None = None,
    ) -> None:
        """Serve the run of an agreement; ``sizes`` are the weights agreed on with clients, which none may exceed.

        ``stores`` are those of clients simulated beside it: what they keep is then part of the state.
        """
        if agreement.known_weights and not sizes:
            raise InputError(
                "the agreement says that every party knows the clients' weights; pass sizes={client: weight}"
            )
        self.agreement, self.privacy, self.average = agreement, privacy, average or Average()
        self.identities, self._stores = identities or Identities(), stores
        self.spent_budget = False
        channel = agreement.channel(privacy.sketch if privacy else None, sizes=sizes)
        self._channel = channel
        self.server = Server(w0, optimizer=agreement.make_optimizer(), channel=channel)
        self.clients: dict[int, int] = {}  # node -> client, in order of arrival
        self._alone: bool | None = True  # what `all_alone` says; None: not known
        self._path = folder / "checkpoint" if folder else None
        self._tally = _Tally()
        self._digest: tuple[int, bytes] | None = None  # of w at a version: many orders and replies need it
        self._book = LedgerBook(folder, privacy.ledger) if folder and privacy else None
        self.resumed = self._resume()
        if self._book:
            self._book.resume() if self.resumed else self._book.start()

    @property
    def channel(self) -> SketchChannel:
        """What the run's frames are made by."""
        return self._channel

    @property
    def t(self) -> int:
        """Rounds done."""
        return self.server.replica.version

    @property
    def w(self) -> Tensor:
        """The w of every replica."""
        return self.server.replica.w

    @property
    def model_vector(self) -> Tensor:
        """The w to use: the average if one is kept, else the replica's."""
        return self.average.of(self.w)

    def digest(self) -> str:
        """SHA-256 of the replica's w, equal on every party."""
        return self.server.replica.digest()

    def charge(self) -> None:
        """Charge the next round's release and put the charge on disk before anything is released."""
        if self.privacy:
            try:
                self.privacy.ledger.charge(self.t + 1)
            except BudgetError:
                self.spent_budget = True
                raise
            self.save()
            if self._book:
                self._book.write()

    def order(self, node: int, *, train: bool = True) -> bytes:
        """The order for a node: what its client confirmed decides what it carries."""
        client = self.clients.get(node)
        version = self.server.versions.get(client) if client is not None else 0 if self.t == 0 else self.t
        wanted = self.t if version is None else version, client is None, train, node in self._tally.wordy
        data = self._tally.orders.get(wanted)  # most nodes of a round get the same
        if data is None:
            data = self._tally.orders[wanted] = self._make_order(*wanted)
        self._tally.greeted.add(node)
        if train:
            self._tally.asked.add(node)
            self._tally.heard.discard(node)
        self._tally.bytes_down += len(data)
        return data

    def _make_order(self, version: int, first_contact: bool, train: bool, in_full: bool) -> bytes:
        package = self.server.log.package(version, self.server.replica.checkpoint)
        order = Order(
            run=self.agreement.run,
            d=self.agreement.d,
            t=self.t + 1,
            since=max(package.since, 0),
            upto=package.upto,
            digest=self._half_digest(),
            train=train,
            agreement=self.agreement.to_json() if first_contact else None,
            checkpoint=package.checkpoint,
            broadcasts=package.broadcasts,
        )
        return (None if in_full else pack_order(order)) or order.pack()

    def receive(self, node: int, data: bytes, *, beside: int = 0) -> Outcome:
        """Take a node's reply in; a bad one is refused by name and the round goes on.

        ``beside`` counts bytes that the carrier brought along with it, e.g. metrics.
        """
        tally = self._tally
        tally.bytes_up += len(data) + beside
        try:
            reply = self._read(node, data) if is_short(data) else Reply.unpack(data)
            if isinstance(reply, Outcome):
                return reply
            if self._is_old(node, reply):
                return Outcome.IGNORED
            tally.heard.add(node)
            self._check(node, reply)
            self._keep_from_copying(reply)
        except WireError as error:
            return self.refuse(node, str(error))
        tally.answered.add(reply.client)
        if reply.state is State.STRANGER:
            self._seat(node, None)  # the next order then brings the agreement
            return Outcome.AGAIN
        self._seat(node, reply.client)
        self.server.versions[reply.client] = reply.version
        tally.seconds.append(reply.seconds)
        if reply.state is State.STALE:
            return Outcome.AGAIN
        if reply.state is State.FAILED:
            return self.refuse(node, reply.reason)
        if reply.state is State.TRAINED:
            tally.frames[reply.client] = reply.frame or b""
        return Outcome.DONE

    def _read(self, node: int, data: bytes) -> Reply | Outcome:
        """A short reply in full; one whose check fails is asked for in full, once, to learn what is wrong."""
        short, t = ShortReply.unpack(data), self.t + 1
        if short.low != t & 0xFF:
            return Outcome.IGNORED
        client = self.clients.get(node)
        if short.state is State.STRANGER:
            if node not in self._tally.greeted:
                return Outcome.IGNORED
            self._seat(node, None)  # the next order brings the agreement
            return Outcome.AGAIN
        if client is None:
            raise WireError("client: a short reply of a node that has not said who it is")
        try:
            return short.full(
                run=self.agreement.run, d=self.agreement.d, t=t, client=client, digest=self._half_digest()
            )
        except WireError:
            if node in self._tally.wordy or node not in self._tally.greeted:
                raise
            self._tally.wordy.add(node)
            return Outcome.AGAIN

    def _half_digest(self) -> bytes:
        if self._digest is None or self._digest[0] != self.t:
            self._digest = self.t, half(self.server.replica.digest())
        return self._digest[1]

    def _seat(self, node: int, client: int | None) -> None:
        """Note who sits at a node."""
        if self.clients.get(node) != client:
            self._alone = None
            if client is None:
                del self.clients[node]
            else:
                self.clients[node] = client

    @property
    def all_alone(self) -> bool:
        """Whether no client has two nodes."""
        if self._alone is None:
            self._alone = len(set(self.clients.values())) == len(self.clients)
        return self._alone

    def homes(self, nodes: Iterable[int]) -> list[int]:
        """Those of the nodes to ask: where two stand for one client, the newer (a restarted node has a new id)."""
        among = [node for node in nodes if self.identities.may_be_somebody(node)]
        known = set(among)
        newest = {client: node for node, client in self.clients.items() if node in known}  # in order of arrival
        return [node for node in among if newest.get(self.clients.get(node, NEVER), node) == node]

    def refuse(self, node: int, reason: str) -> Outcome:
        """Record that a node's reply cannot be used, and why."""
        self._tally.heard.add(node)
        self._tally.refused[self._label(node)] = reason
        return Outcome.REFUSED

    def close(self) -> RoundReport:
        """Average what arrived, apply it, write the state, and begin the next round."""
        step: ServerStep = self.server.step(self.frames)  # sorted: the sum must not depend on who was faster
        self.average.add(self.w)
        self.identities.close(self._tally.asked, self._tally.answered)
        tally, self._tally = self._tally, _Tally()
        self.save()
        return RoundReport(
            round=self.t,
            asked=len(tally.asked),
            participants=step.participants,
            refused={**tally.refused, **{f"client {client}": why for client, why in step.refused.items()}},
            silent=len(tally.asked - tally.heard),
            bytes_up=tally.bytes_up,
            bytes_down=tally.bytes_down,
            eta_global=self.server.replica.optimizer.eta,
            digest=self.server.replica.digest(),
            client_seconds=max(tally.seconds, default=0.0),
            epsilon=self.privacy.ledger.epsilon() if self.privacy else None,
            public=public_facts(self.privacy, self.server.replica.channel, self.t),
            limited={f"client {client}": how for client, how in step.limited.items()},
            void=step.void,
            signal=signal_facts(step.signal, self.privacy),
        )

    @property
    def frames(self) -> dict[int, bytes]:
        """The updates of the open round so far."""
        return dict(sorted(self._tally.frames.items()))

    def settle(self) -> tuple[int, int]:
        """Bytes up and down since the last round was closed; the next round counts anew."""
        tally, self._tally = self._tally, _Tally()
        return tally.bytes_up, tally.bytes_down

    def behind(self, nodes: Iterable[int]) -> list[int]:
        """Those of the nodes whose client has not confirmed the last broadcast."""
        return [node for node in nodes if self.server.versions.get(self.clients.get(node, NEVER)) != self.t]

    def save(self) -> None:
        """Write the state to the folder, if there is one, atomically; the state before it stays beside it."""
        if self._path is not None:
            state = {"identities": self.identities.state_dict(), **self.state_dict()}
            save_checkpoint(self._path, state, t=self.t, identity=self._identity)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on bit for bit."""
        ledger = self.privacy.ledger.state_dict() if self.privacy else None
        state = {"server": self.server.state_dict(), "average": self.average.state_dict(), "ledger": ledger}
        return state | ({"stores": self._stores.state_dict()} if self._stores else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.server.load_state_dict(state["server"])
        self.average.load_state_dict(state["average"])
        if self.privacy:
            self.privacy.ledger.load_state_dict(state["ledger"])
        if self._stores:
            self._stores.load_state_dict(state["stores"])

    def _resume(self) -> bool:
        if self._path is None:
            return False
        later = ("metrics.jsonl", "privacy.json", "server.safetensors")  # written after a checkpoint, or long ago
        if not has_checkpoint(self._path) and not any(self._path.with_name(name).exists() for name in later):
            return False
        state = load_checkpoint(self._path, identity=self._identity)
        self.identities.load_state_dict(state.get("identities", {}))
        self.load_state_dict(state)
        return True

    @property
    def _identity(self) -> str:
        return hashlib.sha256(self.agreement.to_json()).hexdigest()

    def _is_old(self, node: int, reply: Reply) -> bool:
        """Whether a reply answers an order before the one that counts now, or says again what was heard."""
        if reply.run != self.agreement.run:
            return False
        if reply.t <= self.t:
            return True
        if reply.state is State.TRAINED:
            known = self.clients.get(node) == reply.client
            return known and reply.frame is not None and self._tally.frames.get(reply.client) == reply.frame
        return reply.state is State.SYNCED and (node in self._tally.asked or node not in self._tally.greeted)

    def _check(self, node: int, reply: Reply) -> None:
        """Refuse a reply of another run, another round, another weight vector, or a client that already answered."""
        tally, t = self._tally, self.t
        got, expected = (reply.run, reply.t, reply.d), (self.agreement.run, t + 1, self.agreement.d)
        if got != expected:
            names = zip(("run", "round", "d"), got, expected, strict=True)
            raise WireError(next(f"{name}: got {other}, expected {own}" for name, other, own in names if other != own))
        if node not in (tally.asked if reply.state is State.TRAINED else tally.greeted):
            raise WireError("sender: this node was not asked in this round")
        if reply.version > t:
            raise WireError(f"version: got {reply.version}, expected at most {t}")
        self.identities.admit(node, reply.client, reply.token)
        if reply.client in tally.frames:
            raise WireError(f"client: {reply.client} already answered in this round")
        if reply.state in (State.TRAINED, State.SYNCED) and reply.digest != self._half_digest():
            raise WireError("digest: the client's weights are not the server's")

    def _keep_from_copying(self, reply: Reply) -> None:
        """Refuse a frame that repeats another client's in this round, whichever of the two came first."""
        tally = self._tally
        if reply.state is not State.TRAINED or not reply.frame:
            return
        if tally.payloads is None:
            tally.payloads = Payloads(self._channel, reply.t)
        thief = tally.payloads.robbed_by(reply.client, reply.frame)
        if thief is not None:
            tally.frames.pop(thief, None)
            tally.refused[f"client {thief}"] = f"frame: the bytes of client {reply.client}'s frame; a copy"

    def _label(self, node: int) -> str:
        client = self.identities.owner(node)
        return f"node {node}" if client is None else f"client {client}"
