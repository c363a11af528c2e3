"""serve and join: the parties of `federate`, each in a process of its own, over an MQTT broker.

    run = ds.serve("mqtts://broker:8883", model, clients=3, rounds=60, credentials="keys/server")     # one process
    run = ds.join("mqtts://broker:8883", model, ds.Client(x, y), loss=cross_entropy, credentials="keys/client-0")

What the server decides (wire, optimiser, seed) travels in its agreement; what a client decides (loss, local steps,
data) stays with it.  Client c of a run trains exactly as the c-th client of `federate` does.  Privacy is agreed on by
both (`desketch.api.promise`): a client keeps its own ledger, and refuses a server that means another promise.
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
from desketch.api.promise import Promise
from desketch.api.run import Run
from desketch.core.flat import FlatModel
from desketch.core.locks import sole_writer
from desketch.core.rows import read_rows
from desketch.errors import ConfigError, InputError, PrivacyError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.client_momentum import client_beta
from desketch.fed.iterates import make_average
from desketch.fed.module_client import MakeOptimizer
from desketch.fed.optimizers import check_momentum
from desketch.fed.robust import Rule, parse_rule
from desketch.fed.rounds import Observers
from desketch.privacy.accountants import epsilon
from desketch.privacy.client_ledger import Terms
from desketch.privacy.settings import PrivacySettings
from desketch.run.progress import Progress
from desketch.session.agreement import Agreement
from desketch.session.client import ClientSession
from desketch.session.identity import Identities
from desketch.session.rounds import Rounds
from desketch.session.server import ServerSession
from desketch.session.store import FolderStore, MemoryStore
from desketch.session.terms import terms_of
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
    privacy: PrivacySettings | None = None,
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

    The settings that are not explained here are those of `federate`, with its defaults.

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
        privacy: `PerStep` or `SketchClip`, the same as the clients'; who has other settings refuses to train.  Single
            examples are protected, and accounted for, by each client; the server then knows no epsilon.
        server_optimizer: sgd, momentum, nesterov, adam or amsgrad.
        eta_global: the server's step size, or "auto".
        momentum: beta of the server optimiser.
        client_momentum: as in `federate`; "auto" is none, since the server does not know the clients' work.
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

    check_momentum(server_optimizer, momentum)
    address = Address.parse(url, insecure=insecure)
    flat, was_training = FlatModel(model), model.training
    promise = privacy and Promise(privacy=privacy, rounds=rounds, clients=clients, fraction=fraction)
    agreement = Agreement(
        name=promise.name(name) if promise else name,
        seed=seed,
        names=flat.names,
        shapes=flat.shapes,
        wire=wire or Wire(),
        optimizer=server_optimizer,
        eta_global=eta_global,
        beta=momentum,
        client_momentum=client_beta(client_momentum, fraction=fraction, privacy=privacy),
        robust=None if robust is None else parse_rule(robust).spec,
        rounds=rounds if promise else None,
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
            privacy=promise.of_server(agreement.wire.codec) if promise else None,
            average=make_average(average, d=flat.d),
            identities=Identities(clients, {client: client for client in range(clients)}),
        )

        def measured(t: int) -> Mapping[str, float]:
            if evaluate is None or t == 0 or (t % evaluate_every and t != rounds):
                return {}
            return evaluate(flat.load(session.model_vector).eval())

        past = () if folder is None else read_rows(folder / "metrics.jsonl").rows
        bar = stack.enter_context(Progress(rounds, done=session.t, rows=past, show=progress))
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
        epsilon=session.privacy.ledger.epsilon() if session.privacy else None,
        delta=privacy.delta if privacy and session.privacy else None,
        digest=session.digest(),
        stopped_by="rounds" if session.t >= rounds else "budget" if session.spent_budget else "callback",
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
    privacy: PrivacySettings | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    fraction: float = 1.0,
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
        privacy: `PerStep` or `SketchClip`, as the server has it; needs ``state``, where this client's ledger is kept.
            Noise for single examples is calibrated to this client's own data.
        rounds: T of a private run; this client answers no more.
        clients: N, for privacy of whole clients.
        fraction: q, for privacy of whole clients.

    """
    from desketch.integrations.mqtt.address import Address, client_of
    from desketch.integrations.mqtt.client import Answered, MqttClient

    if not isinstance(client, Client):
        raise InputError(f"client is a {type(client).__name__}; give desketch.Client(...)")
    keys, folder = None if credentials is None else Path(credentials), None if state is None else Path(state)
    address = Address.parse(url, insecure=insecure)
    place, was_training = client_of(keys, number), model.training
    promise = _promise(privacy, rounds, clients, fraction, folder)

    def parties(seed: int, codec: str = "f32") -> Parties:
        settings = Settings(
            local_steps=local_steps,
            batch_size=batch_size,
            eta_local=eta_local,
            wire=Wire(compression=1, codec=codec),  # the agreement has the run's sketch
            privacy=privacy,
            server_optimizer="momentum",
            eta_global="auto",
            momentum=None,
            client_momentum=0.0,
            tensor_weights="none",
            average=1,
            fraction=fraction,
            seed=seed,
            statistics=statistics,
            robust=None,
        )
        return Parties(model, [client], settings, loss=loss, optimizer=optimizer, evaluate=None)

    trainer = _ModelTrainer(place, parties, promise)
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
        epsilon=epsilon(session.ledger.spent, privacy.delta) if privacy and session.ledger.spent else None,
        delta=privacy.delta if privacy else None,
        digest="" if session.replica is None else session.replica.digest(),
        stopped_by="rounds",
        folder=folder,
        clients=[trainer.participant],
    )


def _promise(
    privacy: PrivacySettings | None, rounds: int | None, clients: int | None, fraction: float, folder: Path | None
) -> Promise | None:
    """What a client agrees to, or None; a promise that nothing would keep is refused."""
    if privacy is None:
        if (rounds, clients, fraction) != (None, None, 1.0):
            raise ConfigError("rounds, clients and fraction are a client's terms of privacy; give privacy=..., or none")
        return None
    if rounds is None:
        raise ConfigError("a private client agrees to a number of rounds; give rounds=T, as the server has it")
    if folder is None:
        raise PrivacyError(
            "a private client keeps its ledger and its last answer on disk: begun again without them it would release "
            "a round twice; give state=FOLDER"
        )
    return Promise(privacy=privacy, rounds=rounds, clients=clients, fraction=fraction)


class _ModelTrainer:
    """A client's model and data, as a session wants them; what needs the run's seed is made when the run is known."""

    def __init__(self, place: int, parties: Callable[..., Parties], promise: Promise | None) -> None:
        self._place, self._parties, self._promise = place, parties, promise
        self._made = parties(0)  # a model, client or promise that cannot be used is refused before anybody is asked
        self._w0 = self._made.model.flatten()
        self._prepare()

    def _prepare(self) -> None:
        promise, self.model = self._promise, self._made.model
        self._privacy = self._made.privacy(promise.rounds, clients=promise.clients) if promise else None
        self._participant = self._made.one(self._place, self._privacy)

    def start(self, agreement: Agreement) -> Tensor:
        """Make the participant of this run; w0 is the model's weights as they were given."""
        if self._promise:
            self._promise.check(agreement)
        elif agreement.rounds is not None:
            raise PrivacyError(f"the server's run is {agreement.name!r}; give join the same privacy, and rounds")
        self._made = self._parties(agreement.seed, agreement.wire.codec)
        self._prepare()
        return self._w0.clone()

    def terms(self, agreement: Agreement) -> Terms | None:
        """What this client agreed to, whatever the server says."""
        if self._promise is None or self._privacy is None:
            return None
        (examples,), work = self._made.sizes, self._made.work
        return terms_of(self._privacy, agreement, rounds=self._promise.rounds, examples=examples, steps=work.steps)

    def channel(self, agreement: Agreement) -> SketchChannel:
        """The run's channel, which clips sketches where whole clients are protected."""
        return agreement.channel(self._privacy.sketch if self._privacy else None)

    @property
    def participant(self) -> Participant:
        """Who trains."""
        return self._participant
