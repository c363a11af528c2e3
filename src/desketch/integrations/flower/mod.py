"""sketch_mod: wrap any Flower ClientApp that trains on ``arrays``, so that it sends sketches instead.

The wrapped app sees what it always saw: ``arrays`` and ``config`` in, ``arrays`` and ``metrics`` out.  The mod rebuilds
w from broadcasts, hands it over, sketches the difference and keeps the client's replica in its own folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor

from desketch.errors import InputError, RunError
from desketch.fed.channel import SketchChannel
from desketch.integrations.flower import record
from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.layout import to_arrays, to_vector
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession, FolderStore

__all__ = ["SketchMod", "sketch_mod"]


@dataclass(frozen=True, kw_only=True)
class SketchMod:
    """A Flower mod: ``ClientApp(mods=[SketchMod()])``; messages that are not of desketch pass through.

    The client's id is ``client-id`` or ``partition-id`` of the node's config, its folder ``state-folder`` or one under
    FLWR_HOME.
    """

    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer an order through the wrapped app."""
        if not record.carries(msg):
            return call_next(msg, ctxt)
        trainer = _WrappedApp(self, msg, ctxt, call_next)
        session = ClientSession(client_id(ctxt), trainer, FolderStore(state_folder(ctxt)))
        return Message(record.content(session.answer(record.read(msg))), reply_to=msg)


@dataclass
class _WrappedApp:
    """The trainer whose local steps are somebody else's train function."""

    mod: SketchMod
    message: Message
    context: Context
    call_next: ClientAppCallable
    agreement: Agreement | None = None

    def start(self, agreement: Agreement) -> Tensor | None:
        """The wrapped app's initial weights are not known here: they are sent once."""
        self.agreement = agreement
        return None

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel."""
        return agreement.channel()

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
        deal = self.agreement
        if deal is None:
            raise RunError("train before start: the session must join a run first")
        config = ConfigRecord({**dict(deal.config), "server-round": t})
        self.message.content = RecordDict(
            {self.mod.arrayrecord_key: to_arrays(w, deal), self.mod.configrecord_key: config}
        )
        reply = self.call_next(self.message, self.context)
        if reply.has_error():
            raise RunError(f"the wrapped app failed: {reply.error.reason}")
        delta = to_vector(next(iter(reply.content.array_records.values())), deal) - w
        return delta, _weight(reply.content, deal.weighted_by)


def _weight(content: RecordDict, key: str) -> float:
    for metrics in content.metric_records.values():
        value = metrics.get(key)
        if isinstance(value, int | float):
            return float(value)
    raise InputError(f"the app's reply has no metric {key!r} to weigh its update; return MetricRecord({{{key!r}: n}})")


sketch_mod = SketchMod()
