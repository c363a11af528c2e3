"""sketch_mod: wrap any Flower ClientApp that trains on ``arrays``, so that it sends sketches instead.

The wrapped app sees what it always saw: ``arrays`` and ``config`` in, ``arrays`` and ``metrics`` out.  The mod rebuilds
w from broadcasts, hands it over to train or to evaluate, sketches the difference and keeps the client's replica in its
own folder.  Metrics go back beside the frames.  The first w is sent once, unless the client can make it (``w0``): the
server's order names its digest, so a wrong one is noticed and replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor, nn

from desketch.errors import InputError, RunError
from desketch.fed.channel import SketchChannel
from desketch.integrations.flower import record
from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.layout import to_arrays, to_vector
from desketch.privacy.client_ledger import Terms
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, FolderStore
from desketch.session.short import is_short, is_synced

__all__ = ["SketchMod", "sketch_mod"]

Maker = Callable[[], nn.Module | ArrayRecord]


@dataclass(frozen=True, kw_only=True)
class SketchMod:
    """A Flower mod: ``ClientApp(mods=[SketchMod()])``; messages that are not of desketch pass through.

    The client's id is ``client-id`` or ``partition-id`` of the node's config, its folder ``state-folder`` or one under
    FLWR_HOME.

    Args:
        w0: makes the initial model of the run, or its arrays, as the server makes them (the same seed, say); they are
            then not sent. Without it, or if what it makes is not to the bit what the server has, they are sent once.

    """

    w0: Maker | None = None

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer an order through the wrapped app."""
        if not record.carries(msg):
            FolderStore(state_folder(ctxt)).load_ledger().admit_plain()  # no way around a private client's ledger
            return call_next(msg, ctxt)
        order = record.read(msg)
        known = is_short(order)  # whoever is told in short has a replica: no need to make its w0 for every message
        app = _WrappedApp(msg, ctxt, call_next, None if known else self.w0)
        session = ClientSession(client_id(ctxt), app, FolderStore(state_folder(ctxt)))
        answer = session.answer(order)
        evaluate = msg.metadata.message_type == MessageType.EVALUATE
        if evaluate and session.replica and is_synced(answer):  # else it is asked again, with what it misses
            app.evaluate(session.replica.w, session.replica.version)
        return Message(record.content(answer, app.metrics), reply_to=msg)


@dataclass
class _WrappedApp:
    """The trainer whose local steps are somebody else's train function."""

    message: Message
    context: Context
    call_next: ClientAppCallable
    w0: Maker | None
    agreement: Agreement | None = None
    metrics: MetricRecord | None = None  # what the app returned, where the run lets it travel

    def start(self, agreement: Agreement) -> Tensor | None:
        """The initial weights, if the user said how they are made; the wrapped app does not tell them."""
        self.agreement = agreement
        if self.w0 is None:
            return None
        with torch.random.fork_rng(devices=[]):  # the app's own chance stays as it would be without this
            made = self.w0()
        return to_vector(made if isinstance(made, ArrayRecord) else ArrayRecord(made.state_dict()), agreement)

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel."""
        return agreement.channel()

    def terms(self, agreement: Agreement) -> Terms | None:
        """Of a private run: T answers, each given once; the noise is the server's, so they are counted, not priced."""
        if agreement.rounds is None:
            return None
        return Terms(run=hashlib.sha256(agreement.to_json()).hexdigest(), rounds=agreement.rounds)

    @property
    def participant(self) -> _WrappedApp:
        """The app itself trains."""
        return self

    @property
    def client(self) -> int:
        """The client's id."""
        return client_id(self.context)

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Let the app train from w; what it changed, and the metric that weighs it."""
        deal = self._deal
        reply = self._ask(w, deal.app.train, t)
        arrays = list(reply.array_records.values())
        if len(arrays) != 1:
            raise InputError(f"the app's reply must hold one ArrayRecord, the trained model; got {len(arrays)}")
        return to_vector(arrays[0], deal) - w, _weight(reply, deal.app.weighted_by)

    def evaluate(self, w: Tensor, t: int) -> None:
        """Let the app evaluate w, the model after round t."""
        self._ask(w, self._deal.app.evaluate, t)

    def _ask(self, w: Tensor, config: Mapping[str, Any], t: int) -> RecordDict:
        app = self._deal.app
        settings = ConfigRecord({**config, "server-round": t})
        self.message.content = RecordDict({app.arrays: to_arrays(w, self._deal), app.config: settings})
        reply = self.call_next(self.message, self.context)
        if reply.has_error():
            raise RunError(f"the wrapped app failed: {reply.error.reason}")
        if app.metrics and self._deal.rounds is None:  # a private run releases no metrics, whatever it was told
            metrics = next(iter(reply.content.metric_records.values()), None)
            record.content(b"", metrics)  # too large is refused here, so that the server learns why
            self.metrics = metrics
        return reply.content

    @property
    def _deal(self) -> Agreement:
        if self.agreement is None:
            raise RunError("train before start: the session must join a run first")
        return self.agreement


def _weight(content: RecordDict, key: str) -> float:
    for metrics in content.metric_records.values():
        value = metrics.get(key)
        if isinstance(value, int | float):
            return float(value)
    raise InputError(f"the app's reply has no metric {key!r} to weigh its update; return MetricRecord({{{key!r}: n}})")


sketch_mod = SketchMod()
