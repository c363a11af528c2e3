"""sketch_mod: wrap any Flower ClientApp that trains on ``arrays``, so that it sends sketches instead.

The wrapped app sees what it always saw: ``arrays`` and ``config`` in, ``arrays`` and ``metrics`` out.  The mod rebuilds
w from broadcasts, hands it over to train or to evaluate, sketches the difference and keeps the client's replica in its
own folder.  Metrics go back beside the frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor

from desketch.errors import InputError, RunError
from desketch.fed.channel import SketchChannel
from desketch.integrations.flower import record
from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.layout import to_arrays, to_vector
from desketch.privacy.client_ledger import Terms
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, FolderStore
from desketch.session.short import is_synced

__all__ = ["SketchMod", "sketch_mod"]


@dataclass(frozen=True, kw_only=True)
class SketchMod:
    """A Flower mod: ``ClientApp(mods=[SketchMod()])``; messages that are not of desketch pass through.

    The client's id is ``client-id`` or ``partition-id`` of the node's config, its folder ``state-folder`` or one under
    FLWR_HOME.
    """

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer an order through the wrapped app."""
        if not record.carries(msg):
            FolderStore(state_folder(ctxt)).load_ledger().admit_plain()  # no way around a private client's ledger
            return call_next(msg, ctxt)
        order = record.read(msg)
        app = _WrappedApp(msg, ctxt, call_next)
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
    agreement: Agreement | None = None
    metrics: MetricRecord | None = None  # what the app returned, where the run lets it travel

    def start(self, agreement: Agreement) -> Tensor | None:
        """The wrapped app's initial weights are not known here: they are sent once."""
        self.agreement = agreement
        return None

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
