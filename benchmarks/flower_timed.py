"""The timed apps of flower_parts.py: desketch's ready app, FedAvg behind the same resident worker, and plain FedAvg.

The last is what a Flower user writes: a ClientApp that imports torch, loads its data and trains, in a new process for
every message.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from desketch.integrations.flower import record
from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.resident import ask
from flower_clock import note, round_of, steps_timed, timed

sketch_app = ClientApp(mods=[timed])
plain_app = ClientApp(mods=[timed])


@sketch_app.train()
def _sketch(message: Message, context: Context) -> Message:
    """The body of desketch's own client_app, with a worker that keeps the time."""
    reply = ask(
        state_folder(context),
        record.read(message),
        client=client_id(context),
        config=dict(context.run_config),
        guardian=os.getppid(),
        factory="flower_timed:sketch_session",
    )
    return Message(record.content(reply), reply_to=message)


class TimedSession:
    """Any session, with the time of its answers in ``worker.jsonl``."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder

    def answer(self, request: bytes) -> bytes:
        """The session's answer."""
        from desketch.session.protocol import Order
        from desketch.session.short import is_short

        started, spent = time.perf_counter(), [0.0]
        with steps_timed(spent):
            reply: bytes = self.session.answer(request)
        t = self.session.replica.version + 1 if is_short(request) else Order.unpack(request).t
        note(self.folder, "worker.jsonl", t=t, answer=time.perf_counter() - started, steps=sum(spent))
        return reply


def sketch_session(config: dict[str, Any], client: int, folder: Path) -> TimedSession:
    """The resident worker's session of the timed desketch app."""
    from desketch.integrations.flower.party import client_session

    return TimedSession(client_session(config, client, folder), folder)


@plain_app.train()
def _plain(message: Message, context: Context) -> Message:
    import torch

    from desketch.fed import engine
    from desketch.integrations.flower.party import read_settings
    from desketch.tasks.federation import prepare

    started, spent, t = time.perf_counter(), [0.0], round_of(message)
    setup = prepare(read_settings({k: v for k, v in context.run_config.items() if k != "kind"})[0])
    loaded, data = time.perf_counter(), setup.clients[client_id(context)]
    w = torch.from_numpy(message.content["arrays"]["w"].numpy().copy())
    with steps_timed(spent):
        w = w + engine.local_update(setup.model, w, data, setup.work, t=t)
    answer = time.perf_counter() - loaded
    note(state_folder(context), "worker.jsonl", t=t, answer=answer, steps=sum(spent), loading=loaded - started)
    arrays, metrics = ArrayRecord({"w": Array(w.numpy())}), MetricRecord({"num-examples": len(data.y)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
