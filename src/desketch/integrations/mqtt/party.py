"""The parties of a configured run over a broker: what `desketch join` and `desketch serve` start."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from desketch.core.files import write_durably
from desketch.core.locks import sole_writer
from desketch.errors import InputError
from desketch.fed.rounds import Observer
from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.carrier import REPEAT_SECONDS, MqttCarrier
from desketch.integrations.mqtt.client import QOS, Answered, MqttClient
from desketch.integrations.serving import serve_configured
from desketch.session.client import ClientSession
from desketch.session.store import FolderStore
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup, prepare
from desketch.tasks.parties import ConfiguredTrainer

__all__ = ["JOINED", "join_configured", "serve_over_mqtt"]

JOINED = "joined.json"  # in a client's folder: what it has answered, and what that cost its interface


def join_configured(
    address: Address,
    config: RunConfig,
    client: int,
    folder: Path,
    *,
    own_data: str | None = None,
    credentials: Path | None = None,
    qos: int = QOS,
    stop: Callable[[], bool] = lambda: False,
    on_answer: Callable[[dict[str, Any]], None] = lambda told: None,
) -> dict[str, Any]:
    """Be one client of a configured run until it is over; returns what it answered and what that cost.

    Its data are the share that the configuration deals to it, or all of ``own_data``, written like a task.
    """
    setup = prepare(config) if own_data is None else _with_own_data(config, own_data, client)
    if client >= len(setup.clients):
        raise InputError(f"client {client} of a run with {len(setup.clients)}; numbers go from 0")
    session = ClientSession(client, ConfiguredTrainer(setup, client), FolderStore(folder))
    party = MqttClient(address, client, session.answer, credentials=credentials, folder=folder, qos=qos)
    told: dict[str, Any] = {"client": client, "answers": 0, "repeated": 0, "bytes_up": 0, "bytes_down": 0}
    told |= {"interface_up": 0, "interface_down": 0, "over": False}

    def note(answered: Answered) -> None:
        told["answers"] += not answered.repeated
        told["repeated"] += answered.repeated
        told["bytes_up"] += answered.reply
        told["bytes_down"] += answered.order
        told["interface_up"], told["interface_down"] = answered.traffic
        _tell(folder, told)
        on_answer(told)

    with sole_writer(folder, seconds=1.0, name="joined.lock"):  # for its life, not for an answer
        party.run(stop=stop, on_answer=note)
    told["interface_up"], told["interface_down"] = party.link.traffic()
    told["over"] = party.over
    _tell(folder, told)
    return told


def serve_over_mqtt(
    address: Address,
    config: RunConfig,
    folder: Path,
    *,
    credentials: Path | None = None,
    nodes: int | None = None,
    seconds: float = 300.0,
    qos: int = QOS,
    observer: Observer | None = None,
) -> dict[str, Any] | None:
    """Serve a configured run, once ``nodes`` clients (default: all) are there.

    Returns its summary; None when the observer said stop before there was a broker, and nothing was begun.
    """
    carrier = MqttCarrier(address, credentials=credentials, clients=config.clients, qos=qos)
    with ExitStack() as stack:
        stack.push(carrier)  # it is opened here, to be told when to stop
        if not carrier.open(stop=lambda: observer is not None and observer.stop):
            return None
        return serve_configured(
            config,
            folder,
            lambda session: carrier,
            enrolled={client: client for client in range(config.clients)},  # its topics are a client's own
            nodes=config.clients if nodes is None else nodes,
            seconds=seconds,
            repeat_after=min(REPEAT_SECONDS, seconds / 4),
            observer=observer,
        )


def _with_own_data(config: RunConfig, task: str, client: int) -> Setup:
    """The setup of a client that brings its data: all of them are its own, whatever number it has."""
    setup = prepare(config.model_copy(update={"task": task, "clients": 1, "partition": "iid"}))
    mine = replace(setup.clients[0], client=client)
    return replace(setup, clients=[mine] * (client + 1))


def _tell(folder: Path, told: dict[str, Any]) -> None:
    write_durably(folder / JOINED, (json.dumps(told) + "\n").encode())
