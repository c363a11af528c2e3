"""ClientSession: the client's half of the protocol, bytes in and bytes out, whatever carries them.

A session comes up to date (missed broadcasts, or a checkpoint), compares its digest with the server's, trains if asked,
and keeps its replica in a store: Flower keeps a ClientApp's state only in the memory of its SuperNode, so a client that
must survive a restart keeps its own.

A private round is released once.  Whoever asks again, because a message came twice or the server restarted, gets the
same bytes: two answers with fresh noise would average it away, and the ledger was charged for one.  The client trusts
its own ledger for that (`desketch.privacy.client_ledger`), not the server, and not its memory: it is on disk, with the
answer in it, before the answer leaves, and one process at a time reads and writes it.

Where clients send running means, an update enters the mean once for the same reason: asked again for the round it
answered last, the client gives the same bytes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import DesketchError, PrivacyError, RunError, WireError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant, encode_update
from desketch.fed.client_momentum import ClientMomentum
from desketch.fed.replica import CatchUp, Replica
from desketch.privacy.client_ledger import Terms
from desketch.session.agreement import Agreement
from desketch.session.protocol import NEVER, Order, Reply, State, half, strictly
from desketch.session.short import CANNOT_FOLLOW, ShortOrder, is_short, nearest, pack_reply
from desketch.session.store import FolderStore, Kept, MemoryStore, Store

__all__ = ["ClientSession", "FolderStore", "Kept", "MemoryStore", "Store", "Trainer"]


class Trainer(Protocol):
    """What a client brings to a session: its model and its data.

    Who clips or noises also has ``terms(agreement)``, the `Terms` it agreed to; a mechanism without terms is refused.
    """

    def start(self, agreement: Agreement) -> Tensor | None:
        """Prepare for a run; return w0 if this client can make it, else None: it is then sent."""

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel, with this client's own privacy mechanism if it has one."""

    @property
    def participant(self) -> Participant:
        """Who trains."""


class ClientSession:
    """One client of one run at a time; `answer` is all there is to it."""

    def __init__(self, client: int, trainer: Trainer, store: Store) -> None:
        self.client, self.trainer, self.store = client, trainer, store
        self.agreement: Agreement | None = None
        self.replica: Replica | None = None
        self.terms: Terms | None = None
        self.memory: ClientMomentum | None = None
        self._last: Reply | None = None  # given again to whoever asks for the same again
        self.ledger = store.load_ledger()
        self._load()

    def answer(self, request: bytes) -> bytes:
        """One order in, one reply out; errors of this project become a reply that names them."""
        if is_short(request):
            return self._answer_short(ShortOrder.unpack(request))
        order = Order.unpack(request)
        try:
            with self.store.sole():
                self._refresh()
                reply = self._answer(order)
        except DesketchError as error:
            reply = self._failed(order, error)
        if order.agreement is None:
            return reply.pack()
        return replace(reply, token=self.store.token).pack()  # at first contact it shows who it is

    def _answer_short(self, short: ShortOrder) -> bytes:
        """An ordinary round: follow the one broadcast, see by the check that both ends agree, and answer in short."""
        order = None
        try:
            with self.store.sole():
                self._refresh()
                order = self._follow_short(short)
                reply = self._answer(order)
        except DesketchError as error:
            if order is None:  # in full it can be told what is wrong, or missing
                return bytes((CANNOT_FOLLOW, short.low))
            reply = self._failed(order, error)
        return pack_reply(reply) or reply.pack()

    def _follow_short(self, short: ShortOrder) -> Order:
        """The order in full, which this client has then followed; else an error, and its replica is as good as before.

        The broadcast has a check of its own, so it is applied before the order's, which needs the digest after it.
        """
        deal, replica = self._deal, self._replica
        t = nearest(short.low, max(replica.version, 0) + 1)
        if short.frame is not None and replica.version == t - 2:
            with strictly("broadcasts"):
                replica.catch_up(CatchUp(t - 2, t - 1, ((t - 1, short.frame),)))
        if replica.version != t - 1:
            raise WireError(f"order: this client is at version {replica.version}, the order needs {t - 1}")
        return short.full(run=deal.run, d=deal.d, t=t, digest=half(replica.digest()))

    def _failed(self, order: Order, error: DesketchError) -> Reply:
        return self._reply(order, State.FAILED, reason=f"{type(error).__name__}: {error}")

    def _load(self) -> None:
        kept = self.store.load()
        if kept is None:
            return
        if kept.serial > self.ledger.serial:
            raise PrivacyError(
                f"client {self.client} has answered {kept.serial} times, its ledger knows of {self.ledger.serial}: it "
                "is missing or older. Put its newest copy back; without it nothing more is released"
            )
        with suppress(RunError, PrivacyError):  # of a run that this trainer is not for: then it knows none
            self._join(Agreement.from_json(kept.agreement))
            self._replica.load_state_dict(unpack_tree(kept.replica))
            if kept.answer:
                self._last = Reply.unpack(kept.answer)
                if self.memory:
                    self.memory.load_state_dict(unpack_tree(kept.memory))

    def _refresh(self) -> None:
        """Take in what another process of this client has answered meanwhile."""
        on_disk = self.store.load_ledger()
        if on_disk.serial < self.ledger.serial:
            raise PrivacyError(f"client {self.client}: its ledger on disk is older than what it has released; stop it")
        moved, self.ledger = on_disk.serial > self.ledger.serial, on_disk
        if moved:
            self._load()

    def _answer(self, order: Order) -> Reply:
        if not self._knows(order):
            return self._reply(order, State.STRANGER)
        if self.terms is None:
            self.ledger.admit_plain()
        elif order.train:
            if (given := self.ledger.repeated(self.terms, order.t, order.digest.hex())) is not None:
                return Reply.unpack(given)
            self.ledger.admit(self.terms, order.t)  # before the work, and before its replica moves
        return self._follow(order)

    def _follow(self, order: Order) -> Reply:
        self._come_up_to_date(order)
        replica = self._replica
        if replica.version != order.upto or half(replica.digest()) != order.digest:
            if replica.version == order.upto:
                replica.version = NEVER  # equal rounds, other weights: only the whole state helps
            self._save()  # the next order may find another process here
            return self._reply(order, State.STALE)
        if not order.train:
            self._save()
            return self._reply(order, State.SYNCED)
        return self._train(order)

    def _train(self, order: Order) -> Reply:
        if self._last and (self._last.t, self._last.digest) == (order.t, order.digest):
            return self._last
        started = time.perf_counter()
        frame = encode_update(
            self.trainer.participant,
            self._channel,
            self._replica.w,
            t=order.t,
            memory=self.memory,
            last_step=self._replica.optimizer.last_step,
        )
        spent = 0.0 if self.terms else time.perf_counter() - started  # how long it took tells of the sample's size
        reply = self._reply(order, State.TRAINED, frame=frame, seconds=spent)
        if self.terms:
            ledger = self.ledger.after(self.terms, order.t, order.digest.hex(), reply.pack())
            self.store.save_ledger(ledger)  # charge and answer are on disk before it leaves
            self.ledger = ledger
        self._last = reply
        self._save()
        return reply

    def _knows(self, order: Order) -> bool:
        if self.agreement is not None and self.agreement.run == order.run:
            return True
        if order.agreement is None:
            return False
        with strictly("agreement"):
            offered = Agreement.from_json(order.agreement)
            mine = (offered.run, offered.d) == (order.run, order.d)
        if mine:  # else what this client has stays as it is
            self._join(offered)
        return mine

    def _join(self, agreement: Agreement) -> None:
        """Begin a run at version 0, or at `NEVER` when w0 is not known here."""
        with strictly("agreement"):
            channel = agreement.channel()  # refused here if it cannot be drawn, whatever the trainer makes of it
            zeros = torch.zeros(agreement.d)
            agreement.replica(zeros, channel)
        w0 = self.trainer.start(agreement)
        if w0 is not None and w0.numel() != agreement.d:
            raise RunError(
                f"client {self.client}: the model has {w0.numel()} weights, the run has {agreement.d}; use one model"
            )
        channel, terms = self.trainer.channel(agreement), self._terms(agreement)
        if terms is None and (channel.mechanism or getattr(self.trainer.participant, "mechanism", None)):
            raise PrivacyError(f"client {self.client} has a privacy mechanism but no terms to hold it to; give it both")
        self.agreement, self._channel, self.terms = agreement, channel, terms
        self.memory, self._last = agreement.memory(), None
        self.replica = agreement.replica(zeros if w0 is None else w0, self._channel)
        self.replica.version = NEVER if w0 is None else 0

    def _terms(self, agreement: Agreement) -> Terms | None:
        terms: Terms | None = self.trainer.terms(agreement) if hasattr(self.trainer, "terms") else None
        if terms and terms.rounds != agreement.rounds:
            raise PrivacyError(
                f"client {self.client} agreed to {terms.rounds} rounds, the server's agreement says {agreement.rounds}"
            )
        return terms

    def _come_up_to_date(self, order: Order) -> None:
        replica = self._replica
        if replica.version > order.upto:
            self._join(self._deal)  # the server started over: so does the client
            replica = self._replica
        if order.checkpoint is not None:
            with strictly("checkpoint"):
                fresh = self._deal.replica(
                    torch.zeros(order.d), self._channel
                )  # a bad one leaves what is here as it is
                fresh.catch_up(CatchUp(order.since, order.upto, checkpoint=order.checkpoint))
            if fresh.version != order.upto:
                raise WireError(f"checkpoint: got version {fresh.version}, expected {order.upto}")
            self.replica = fresh
        elif NEVER < order.since <= replica.version:
            with strictly("broadcasts"):
                replica.catch_up(CatchUp(order.since, order.upto, order.broadcasts))

    def _reply(
        self, order: Order, state: State, *, frame: bytes | None = None, seconds: float = 0.0, reason: str = ""
    ) -> Reply:
        known = self.replica is not None and self.replica.version != NEVER and state is not State.STRANGER
        return Reply(
            run=order.run,
            d=order.d,
            t=order.t,
            state=state,
            client=self.client,
            version=self._replica.version if known else NEVER,
            digest=half(self._replica.digest()) if known else bytes(16),
            seconds=seconds,
            frame=frame,
            reason=reason,
        )

    def _save(self) -> None:
        if self.agreement is not None:
            mean = pack_tree(self.memory.state_dict()) if self.memory and self._last else b""
            answer = self._last.pack() if self._last else b""
            replica = self._replica.checkpoint()
            self.store.save(Kept(self.agreement.to_json(), replica, self.ledger.serial, mean, answer))

    @property
    def _deal(self) -> Agreement:
        if self.agreement is None:
            raise RunError("this client has joined no run yet")
        return self.agreement

    @property
    def _replica(self) -> Replica:
        if self.replica is None:
            raise RunError("this client has joined no run yet")
        return self.replica
