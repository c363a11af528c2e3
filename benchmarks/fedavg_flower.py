"""Flower's FedAvg for thin_wire.py and flower_parts.py: its own strategy and records, in f32, in f16, or empty.

Model, data and local steps are those of the configured desketch run, through the same resident worker, so that start-up
costs both sides alike and the difference is what travels.  ``kind`` is fedavg, fedavg-f16 or empty; the last sends one
byte and trains nothing: what is left is Flower's own overhead.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.resident import ask
from flower_clock import note, steps_timed, timed

client_app = ClientApp(mods=[timed])
server_app = ServerApp()


@client_app.train()
def _train(message: Message, context: Context) -> Message:
    arrays = message.content["arrays"]
    w = arrays["w"].numpy()
    request = pickle.dumps((message.content["config"]["server-round"], w))
    config = {key: value for key, value in context.run_config.items() if key != "kind"}
    reply = ask(
        state_folder(context),
        request,
        client=client_id(context),
        config=config,
        guardian=os.getppid(),
        factory="fedavg_flower:session",
    )
    trained, examples = pickle.loads(reply)
    content = RecordDict(
        {"arrays": ArrayRecord({"w": Array(trained)}), "metrics": MetricRecord({"num-examples": examples})}
    )
    return Message(content, reply_to=message)


class Session:
    """The local steps of one client, from one array of weights to the next, in the dtype they came in."""

    def __init__(self, setup: Any, client: int, folder: Path) -> None:
        self.setup, self.data, self.folder = setup, setup.clients[client], folder

    def answer(self, request: bytes) -> bytes:
        """Weights in, weights and number of examples out."""
        import torch

        from desketch.fed import engine

        started, spent = time.perf_counter(), [0.0]
        t, w = pickle.loads(request)
        if w.size == 1:
            return pickle.dumps((w, 1))
        vector = torch.from_numpy(w.astype(np.float32))
        with steps_timed(spent):
            delta = engine.local_update(self.setup.model, vector, self.data, self.setup.work, t=t)
        reply = pickle.dumps(((vector + delta).numpy().astype(w.dtype), len(self.data.y)))
        note(self.folder, "worker.jsonl", t=t, answer=time.perf_counter() - started, steps=sum(spent))
        return reply


def session(config: dict[str, Any], client: int, folder: Path) -> Session:
    """Build the worker's session."""
    from desketch.integrations.flower.party import read_settings
    from desketch.tasks.federation import prepare

    return Session(prepare(read_settings(config)[0]), client, folder)


class TimedFedAvg(FedAvg):
    """FedAvg that knows how long its average took."""

    seconds_server = 0.0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Average."""
        started = time.perf_counter()
        average = super().aggregate_train(server_round, replies)
        self.seconds_server = time.perf_counter() - started
        return average


class HalfFedAvg(TimedFedAvg):
    """FedAvg whose arrays travel in f16; averages are taken in f32."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
        """Round the weights before they are sent."""
        return super().configure_train(server_round, _cast(arrays, np.float16), config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Average in f32."""
        replies = list(replies)
        for reply in replies:
            if reply.has_content():
                reply.content["arrays"] = _cast(reply.content["arrays"], np.float32)
        return super().aggregate_train(server_round, replies)


def _cast(arrays: ArrayRecord, dtype: Any) -> ArrayRecord:
    return ArrayRecord({name: Array(array.numpy().astype(dtype)) for name, array in arrays.items()})


STRATEGIES: dict[str, Callable[..., TimedFedAvg]] = {
    "fedavg": TimedFedAvg,
    "fedavg-f16": HalfFedAvg,
    "empty": TimedFedAvg,
}


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    import torch

    from desketch.integrations.flower.party import read_settings
    from desketch.tasks.federation import prepare

    flat = dict(context.run_config)
    kind = str(flat.pop("kind"))
    config, extra = read_settings(flat)
    setup = prepare(config)
    folder = Path(str(config.out))
    folder.mkdir(parents=True, exist_ok=True)
    while len(list(grid.get_node_ids())) < config.clients:
        time.sleep(0.2)
    clock = time.perf_counter()

    def evaluate(t: int, arrays: ArrayRecord) -> MetricRecord | None:
        nonlocal clock
        seconds = time.perf_counter() - clock
        w = arrays["w"].numpy().astype(np.float32)
        metrics = setup.evaluate(torch.from_numpy(w)) if w.size > 1 else {"accuracy": 0.0}
        if t:
            with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                row = {"round": t, "seconds": seconds, "seconds_server": strategy.seconds_server, **metrics}
                file.write(json.dumps(row) + "\n")
        clock = time.perf_counter()
        return None

    w0 = np.zeros(1, dtype=np.float32) if kind == "empty" else setup.model.flatten().numpy()
    strategy = STRATEGIES[kind](
        fraction_evaluate=0.0, min_train_nodes=config.clients, min_available_nodes=config.clients
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"w": Array(w0)}),
        num_rounds=config.rounds,
        timeout=extra["round_timeout"],
        evaluate_fn=evaluate,
    )
