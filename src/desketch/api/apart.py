"""serve and join: the parties of `federate`, each in a process of its own, over an MQTT broker.

    run = ds.serve("mqtts://broker:8883", model, clients=3, rounds=60, credentials="keys/server")     # one process
    run = ds.join("mqtts://broker:8883", model, ds.Client(x, y), loss=cross_entropy, credentials="keys/client-0")

What the server decides (wire, optimiser, seed) travels in its agreement; what a client decides (loss, local steps,
data) stays with it.  Client c of a run trains exactly as the c-th client of `federate` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from desketch.api.client import Client
from desketch.api.parties import Evaluate, Parties, Settings
from desketch.api.run import Run
from desketch.core.flat import FlatModel
from desketch.core.locks import sole_writer
from desketch.errors import InputError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.client_momentum import client_beta
from desketch.fed.iterates import make_average
from desketch.fed.module_client import MakeOptimizer
from desketch.fed.robust import Rule, parse_rule
from desketch.fed.rounds import Observers
from desketch.run.progress import Progress
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession
from desketch.session.identity import Identities
from desketch.session.rounds import Rounds
from desketch.session.server import ServerSession
from desketch.session.store import FolderStore, MemoryStore
from desketch.wire import Wire

__all__ = ["join", "serve"]


def serve(
    url: str,
    model: nn.Module,
    *,
    clients: int,
    rounds: int,
    credentials: str | Path | None = None,
    insecure: bool = False,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    wire: Wire | None = None,
    server_optimizer: str = "momentum",
    eta_global: float | Literal["auto"] = "auto",
    momentum: float | None = None,
    client_momentum: float | Literal["auto"] = "auto",
    average: int | Literal["all"] = 10,
    fraction: float = 1.0,
    robust: str | Rule | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    name: str = "desketch",
    round_timeout: float = 300.0,
    progress: bool | None = None,
) -> Run:
    """Serve a run to ``clients`` clients that `join` it; the model is trained in place and is ``run.model``.

    The settings that are not explained here are those of `federate`, with its defaults.  There is no privacy setting:
    private runs over MQTT are configured ones (`desketch serve --config`), whose clients know their terms.

    Args:
        url: the broker, ``mqtts://host:port``, or ``mqtt://127.0.0.1:port`` in the clear.
        model: as in `federate`; its weights are w0.
        clients: N; all of them are waited for before the first round.
        rounds: T.
        credentials: the server's folder with ca.pem, cert.pem and key.pem.
        insecure: allow ``mqtt://`` beyond this machine.
        evaluate: ``evaluate(model)`` returns metrics by name.
        evaluate_every: rounds between evaluations.
        wire: family, compression and codecs.
        server_optimizer: sgd, momentum, nesterov, adam or amsgrad.
        eta_global: the server's step size, or "auto".
        momentum: beta of the server optimiser.
        client_momentum: as in `federate`; "auto" takes clients for plain ones.
        average: evaluate and return the mean of the last n rounds' weights.
        fraction: the share of the clients asked in a round.
        robust: how updates are averaged when some clients may lie.
        seed: of the public key and of all clients' shuffles.
        out: a folder for state and metrics; a run found there is gone on with.
        name: tells runs with equal settings apart.
        round_timeout: seconds until a round goes on without silent clients.
        progress: show a progress bar; default: when the standard error is a terminal.

    """
    from desketch.integrations.mqtt.address import Address
    from desketch.integrations.mqtt.carrier import REPEAT_SECONDS, MqttCarrier

    address = Address.parse(url, insecure=insecure)
    flat, was_training = FlatModel(model), model.training
    agreement = Agreement(
        name=name,
        seed=seed,
        names=flat.names,
        shapes=flat.shapes,
        wire=wire or Wire(),
        optimizer=server_optimizer,
        eta_global=eta_global,
        beta=momentum,
        client_momentum=client_beta(client_momentum, fraction=fraction, plain=True, privacy=None),
        robust=None if robust is None else parse_rule(robust).spec,
    )
    if (caution := agreement.wire.caution(flat.d)) is not None:
        warnings.warn(caution, stacklevel=2)
    folder, rows = None if out is None else Path(out), list[dict[str, Any]]()
    with ExitStack() as stack:
        stack.enter_context(sole_writer(folder, seconds=1.0))
        session = ServerSession(
            agreement,
            flat.flatten(),
            folder=folder,
            average=make_average(average),
            identities=Identities(clients, {client: client for client in range(clients)}),
        )

        def measured(t: int) -> Mapping[str, float]:
            if evaluate is None or t == 0 or (t % evaluate_every and t != rounds):
                return {}
            return evaluate(flat.load(session.model_vector).eval())

        bar = stack.enter_context(Progress(rounds, done=session.t, show=progress))
        keys = None if credentials is None else Path(credentials)
        carrier = stack.enter_context(MqttCarrier(address, credentials=keys, clients=clients))
        Rounds(
            session=session,
            carrier=carrier,
            clients=clients,
            fraction=fraction,
            wait_for=clients,
            seconds=round_timeout,
            repeat_after=min(REPEAT_SECONDS, round_timeout / 4),
            seed=seed,
            folder=folder,
            evaluate=measured,
            observer=Observers(bar),
            on_row=rows.append,
        ).run(rounds)
    module = flat.load(session.model_vector)
    module.train(was_training)
    return Run(
        model=module,
        history=rows,
        rounds=session.t,
        bytes_up=sum(row["bytes_up"] for row in rows) / clients,
        bytes_down=sum(row["bytes_down"] for row in rows) / clients,
        epsilon=None,
        delta=None,
        digest=session.digest(),
        stopped_by="rounds" if session.t >= rounds else "callback",
        folder=folder,
    )


def join(
    url: str,
    model: nn.Module,
    client: Client,
    *,
    number: int | None = None,
    credentials: str | Path | None = None,
    insecure: bool = False,
    state: str | Path | None = None,
    loss: Callable[..., Tensor] | None = None,
    local_steps: int = 20,
    batch_size: int | None = 32,
    eta_local: float = 0.1,
    optimizer: MakeOptimizer | None = None,
    statistics: Literal["refuse", "local"] = "refuse",
) -> Run:
    """Be one client of a run until it is over; ``model`` ends with the run's last weights and is ``run.model``.

    Args:
        url: the broker, as the server has it.
        model: the model of the run; weights that are not the server's are replaced by them.
        client: this client's data or loop.
        number: which client it is, from 0; its credentials say it by themselves.
        credentials: its folder with ca.pem, cert.pem and key.pem.
        insecure: allow ``mqtt://`` beyond this machine.
        state: a folder in which its replica and last answer outlive this process; None: in memory only.
        loss: ``loss(output, y)``, or ``loss(model, batch)``.
        local_steps: K.
        batch_size: examples of a local step; None takes all of them.
        eta_local: the step size of plain gradient descent.
        optimizer: ``optimizer(parameters)`` makes the local torch optimiser.
        statistics: "local" keeps running statistics (BatchNorm) here.

    """
    from desketch.integrations.mqtt.address import Address, client_of
    from desketch.integrations.mqtt.client import Answered, MqttClient

    if not isinstance(client, Client):
        raise InputError(f"client is a {type(client).__name__}; give desketch.Client(...)")
    keys, folder = None if credentials is None else Path(credentials), None if state is None else Path(state)
    address = Address.parse(url, insecure=insecure)
    place, was_training = client_of(keys, number), model.training

    def parties(seed: int) -> Parties:
        settings = Settings(
            local_steps=local_steps,
            batch_size=batch_size,
            eta_local=eta_local,
            wire=Wire(compression=1, codec="f32"),  # the agreement has the run's
            privacy=None,
            server_optimizer="momentum",
            eta_global="auto",
            momentum=None,
            client_momentum=0.0,
            average=1,
            fraction=1.0,
            seed=seed,
            statistics=statistics,
            robust=None,
        )
        return Parties(model, [client], settings, loss=loss, optimizer=optimizer, evaluate=None)

    trainer = _ModelTrainer(place, parties)
    session = ClientSession(place, trainer, MemoryStore() if folder is None else FolderStore(folder))
    heard: list[Answered] = []
    with sole_writer(folder, seconds=1.0, name="joined.lock"):
        MqttClient(address, place, session.answer, credentials=keys, folder=folder).run(on_answer=heard.append)
    w = None if session.replica is None else session.replica.w
    module = model if w is None else trainer.model.load(w)
    module.train(was_training)
    return Run(
        model=module,
        history=[{"bytes_up": one.reply, "bytes_down": one.order, "repeated": one.repeated} for one in heard],
        rounds=0 if session.replica is None else session.replica.version,
        bytes_up=sum(one.reply for one in heard),
        bytes_down=sum(one.order for one in heard),
        epsilon=None,
        delta=None,
        digest="" if session.replica is None else session.replica.digest(),
        stopped_by="rounds",
        folder=folder,
        clients=[trainer.participant],
    )


class _ModelTrainer:
    """A client's model and data, as a session wants them; what needs the run's seed is made when the run is known."""

    def __init__(self, place: int, parties: Callable[[int], Parties]) -> None:
        self._place, self._parties = place, parties
        made = parties(0)  # a model or client that cannot be used is refused before anybody is asked
        self.model, self._w0 = made.model, made.model.flatten()
        self._participant = made.one(place)

    def start(self, agreement: Agreement) -> Tensor:
        """Make the participant of this run; w0 is the model's weights as they were given."""
        made = self._parties(agreement.seed)
        self.model, self._participant = made.model, made.one(self._place)
        return self._w0.clone()

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel."""
        return agreement.channel()

    @property
    def participant(self) -> Participant:
        """Who trains."""
        return self._participant
