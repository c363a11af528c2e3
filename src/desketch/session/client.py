"""ClientSession: the client's half of the protocol, bytes in and bytes out, whatever carries them.

A session comes up to date (missed broadcasts, or a checkpoint), compares its digest with the server's, trains if asked,
and keeps its replica in a store: Flower keeps a ClientApp's state only in the memory of its SuperNode, so a client that
must survive a restart keeps its own.

A private round is released once.  Whoever asks again, because a message came twice or the server restarted, gets the
same bytes: two answers with fresh noise would average it away, and the ledger was charged for one.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from desketch.core.files import write_durably
from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import DesketchError, RunError, WireError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant, encode_update
from desketch.fed.replica import CatchUp, Replica
from desketch.session.agreement import Agreement
from desketch.session.protocol import NEVER, TOKEN_SIZE, Order, Reply, State, half, strictly

__all__ = ["ClientSession", "FolderStore", "Kept", "MemoryStore", "Store", "Trainer"]


class Trainer(Protocol):
    """What a client brings to a session: its model and its data."""

    def start(self, agreement: Agreement) -> Tensor | None:
        """Prepare for a run; return w0 if this client can make it, else None: it is then sent."""

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel, with this client's own privacy mechanism if it has one."""

    @property
    def participant(self) -> Participant:
        """Who trains."""


class Kept(NamedTuple):
    """What outlives a session; ``released`` is its last private reply, or nothing."""

    agreement: bytes
    replica: bytes
    released: bytes = b""


class Store(ABC):
    """Where a session's state outlives it."""

    @abstractmethod
    def load(self) -> Kept | None:
        """What was saved, or None."""

    @abstractmethod
    def save(self, kept: Kept) -> None:
        """Keep the state; replaces what was there at once or not at all."""

    @cached_property
    def token(self) -> bytes:
        """What shows that this client is the one that was here before."""
        return os.urandom(TOKEN_SIZE)


class MemoryStore(Store):
    """Lives as long as its process."""

    def __init__(self) -> None:
        self._kept: Kept | None = None

    def load(self) -> Kept | None:
        """What `save` kept."""
        return self._kept

    def save(self, kept: Kept) -> None:
        """Keep it."""
        self._kept = kept


class FolderStore(Store):
    """One file in the client's own folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "replica.safetensors"

    def load(self) -> Kept | None:
        """Read the file; one that cannot be read counts as absent, since the server can send everything again."""
        try:
            return Kept(**unpack_tree(self._path.read_bytes()))
        except (OSError, TypeError, DesketchError):
            return None

    def save(self, kept: Kept) -> None:
        """Write a new file and put it in place of the old one."""
        write_durably(self._path, pack_tree(kept._asdict()))

    @cached_property
    def token(self) -> bytes:
        """The token in the client's folder, made when first needed."""
        path = self._path.with_name("token")
        try:
            known = path.read_bytes()
        except OSError:
            known = b""
        if len(known) != TOKEN_SIZE:
            known = os.urandom(TOKEN_SIZE)
            write_durably(path, known)
            path.chmod(0o600)
        return known


class ClientSession:
    """One client of one run at a time; `answer` is all there is to it."""

    def __init__(self, client: int, trainer: Trainer, store: Store) -> None:
        self.client, self.trainer, self.store = client, trainer, store
        self.agreement: Agreement | None = None
        self.replica: Replica | None = None
        self._released = b""
        if kept := store.load():
            self._join(Agreement.from_json(kept.agreement))
            self._replica.load_state_dict(unpack_tree(kept.replica))
            self._released = kept.released

    def answer(self, request: bytes) -> bytes:
        """One order in, one reply out; errors of this project become a reply that names them."""
        order = Order.unpack(request)
        try:
            reply = self._answer(order)
        except DesketchError as error:
            reply = self._reply(order, State.FAILED, reason=f"{type(error).__name__}: {error}")
        return replace(reply, token=self.store.token if order.agreement is not None else b"").pack()

    def _answer(self, order: Order) -> Reply:
        if not self._knows(order):
            return self._reply(order, State.STRANGER)
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
        return self._released_before(order) or self._train(order)

    def _train(self, order: Order) -> Reply:
        started = time.perf_counter()
        frame = encode_update(self.trainer.participant, self._channel, self._replica.w, t=order.t)
        reply = self._reply(order, State.TRAINED, frame=frame, seconds=time.perf_counter() - started)
        if self._private:
            self._released = reply.pack()  # on disk before it leaves
        self._save()
        return reply

    def _released_before(self, order: Order) -> Reply | None:
        """The reply to the same private round at the same weights, if it was given already."""
        if not (self._private and self._released):
            return None
        old = Reply.unpack(self._released)
        return old if (old.run, old.t, old.digest) == (order.run, order.t, order.digest) else None

    @property
    def _private(self) -> bool:
        """Whether this client clips and noises: its sketches, or every local step."""
        return bool(self._channel.mechanism or getattr(self.trainer.participant, "mechanism", None))

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
        self.agreement, self._channel = agreement, self.trainer.channel(agreement)
        self.replica = agreement.replica(zeros if w0 is None else w0, self._channel)
        self.replica.version = NEVER if w0 is None else 0

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
        known = self.replica is not None and state is not State.STRANGER
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
            self.store.save(Kept(self.agreement.to_json(), self._replica.checkpoint(), self._released))

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
