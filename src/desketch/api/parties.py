"""From what a user has, a module and clients of any kind, to the parties of Algorithm 1 (or 2)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from desketch.api.client import Client
from desketch.api.examples import check_kind, is_tensors, kind_of, try_model
from desketch.api.run import Run
from desketch.core.flat import FlatModel
from desketch.core.on_demand import OnDemand, OnDemandTable, looked_at
from desketch.errors import ConfigError, InputError, PrivacyError
from desketch.fed.channel import SketchChannel
from desketch.fed.client import Participant
from desketch.fed.client_momentum import ClientMomentum, client_beta
from desketch.fed.engine import LoopEngine
from desketch.fed.engines import make_engine
from desketch.fed.iterates import make_average
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.mechanism import Privacy
from desketch.fed.module_client import MakeOptimizer, ModuleClient, StepsClient, TrainClient, batch_loss, takes_model
from desketch.fed.open_step import adaptive
from desketch.fed.optimizers import make_optimizer
from desketch.fed.robust import check_cohort, parse_rule
from desketch.fed.rounds import RESERVED, Attendance, Federation
from desketch.fed.tensor_client import tensor_clients
from desketch.fed.tensor_weights import TensorWeights, check_tensor_weights
from desketch.keys import Key
from desketch.privacy.per_example import PerExample
from desketch.privacy.planning import RunShape, plan_private_run
from desketch.privacy.settings import PrivacySettings
from desketch.run.folder import MY_DATA
from desketch.wire import Wire, run_id

__all__ = ["Evaluate", "Parties", "Settings"]

Evaluate = Callable[[nn.Module], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of `federate` that decide a round's result."""

    local_steps: int
    batch_size: int | None
    eta_local: float
    wire: Wire
    privacy: PrivacySettings | None
    server_optimizer: str
    eta_global: float | Literal["auto"]
    momentum: float | None
    client_momentum: float | Literal["auto"]
    tensor_weights: str
    average: int | str
    fraction: float
    seed: int
    statistics: str
    robust: str | None


class Parties:
    """From what a user has, to the participants of a federation."""

    def __init__(
        self,
        module: nn.Module,
        clients: Sequence[Client | Participant],
        settings: Settings,
        *,
        loss: Callable[..., Tensor] | None,
        optimizer: MakeOptimizer | None,
        evaluate: Evaluate | None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise InputError(f"model must be a torch.nn.Module, got {type(module).__name__}")
        if len(clients) == 0:
            raise InputError("there are no clients; give at least one Client")
        for place, client in enumerate(looked_at(clients)):
            check_kind(place, client)
        check_tensor_weights(settings.tensor_weights)
        if optimizer is not None and not callable(optimizer):
            raise ConfigError(
                f"optimizer is a function that makes one of a client's parameters, such as "
                f"lambda parameters: torch.optim.AdamW(parameters, lr=1e-3); got {type(optimizer).__name__}"
            )
        if settings.average == "local":
            raise ConfigError("average='local' is offered by `desketch train` alone; use a number or 'all'")
        if settings.robust is not None:
            check_cohort(parse_rule(settings.robust), clients=len(clients), fraction=settings.fraction)
        if settings.statistics not in ("refuse", "local"):
            raise ConfigError(f"statistics is 'refuse' or 'local', got {settings.statistics!r}")
        if settings.statistics == "local" and not isinstance(clients, list | tuple):
            raise ConfigError("statistics='local' evaluates every client's own model; give the clients as a list")
        self.clients, self.settings, self.loss, self.optimizer = clients, settings, loss, optimizer
        self.measure = evaluate
        pairwise = loss is not None and not takes_model(loss)
        local = settings.statistics == "local"
        self.was_training = module.training
        self.model = FlatModel(module, *([loss] if pairwise and loss else []), local_statistics=local)
        self.batched = pairwise and optimizer is None and not local and all(is_tensors(c) for c in looked_at(clients))
        self.device = self.model.device
        self.work = LocalWork(
            steps=settings.local_steps, eta=settings.eta_local, batch=settings.batch_size, seed=settings.seed
        )
        if (caution := settings.wire.caution(self.model.d)) is not None:
            warnings.warn(caution, stacklevel=4)

    @cached_property
    def identity(self) -> str:
        """Equal for runs that may resume one another: the same settings, parameters and local optimiser.

        The weights that the model came with are not among them: a run goes on from those of its checkpoint.
        """
        facts = f"{self.settings!r}|{len(self.clients)}|{self.model.names}|{self.model.shapes}"
        chosen = f"{self.local_optimizer}|{self.client_beta}|{self.weighs_tensors}"
        return hashlib.sha256(f"{facts}|{chosen}".encode()).hexdigest()

    @property
    def local_optimizer(self) -> str:
        """What clients take their steps with, where they do not train by a loop of their own."""
        return "plain steps" if self.optimizer is None else type(self._made_optimizer).__name__

    def describe(self, rounds: int) -> dict[str, Any]:
        """The settings for people, as the run folder's ``config.yaml`` has them; the model and data are the user's."""
        s = self.settings
        return {
            "task": MY_DATA,
            "model": type(self.model.module).__name__,
            "clients": len(self.clients),
            "rounds": rounds,
            **{f.name: getattr(s, f.name) for f in fields(s) if f.name not in ("wire", "privacy")},
            **asdict(s.wire),
            "b": s.wire.sketch_size(self.model.d),
            "local_optimizer": self.local_optimizer,
            "client_beta": self.client_beta,
            "weighs_tensors": self.weighs_tensors,
            "dp": None if s.privacy is None else {"mechanism": type(s.privacy).__name__, **asdict(s.privacy)},
        }

    def federation(self, *, rounds: int, evaluate_every: int) -> Federation:
        """The parties of Algorithm 1 (or 2)."""
        s = self.settings
        w0 = self.model.flatten()
        self.attendance = Attendance(fraction=s.fraction, seed=s.seed)
        privacy, beta = self.privacy(rounds), self.client_beta
        self.participants = self._participants(privacy)
        sizes = self._sizes()
        channel = SketchChannel(
            d=self.model.d,
            key=Key(s.seed),
            wire=s.wire,
            run=run_id(self.identity),
            mechanism=privacy.sketch if privacy else None,
            robust=s.robust,
            sizes=sizes,
            agreed=sizes,
            along=beta > 0 and s.eta_global == "auto",
            tensor_weights=TensorWeights(self.model.sizes) if self.weighs_tensors else None,
        )
        federation = Federation(
            clients=self.participants,
            channel=channel,
            optimizer=make_optimizer(
                s.server_optimizer, eta_global=s.eta_global, beta=s.momentum, client_momentum=beta
            ),
            w0=w0,
            attendance=self.attendance,
            average=make_average(s.average, d=self.model.d),
            privacy=privacy,
            memory=ClientMomentum(beta) if beta else None,
            evaluate=self.evaluate if self.measure else None,
            evaluate_every=evaluate_every,
        )
        if self.batched:  # clients train on copies of w: one vector in place of w, w0 and the module's
            federation.w0 = federation.server.replica.w
            self.model.rest_on(federation.server.replica.w)
        return federation

    @property
    def client_beta(self) -> float:
        """The beta of the clients' running means, 0 for none."""
        s = self.settings
        return client_beta(
            s.client_momentum,
            local_steps=s.local_steps,
            fraction=s.fraction,
            plain=self._plain,
            numbers=len(self.clients) * self.model.d,
            privacy=s.privacy,
        )

    @property
    def _plain(self) -> bool:
        """Whether every client is known to take plain gradient steps."""
        if not all(isinstance(client, Client) and client.train is None for client in looked_at(self.clients)):
            return False
        return self.optimizer is None or isinstance(self._made_optimizer, torch.optim.SGD)

    @cached_property
    def _made_optimizer(self) -> Any:
        """One of the clients' optimisers, to look at."""
        assert self.optimizer is not None
        return self.optimizer([p for p in self.model.module.parameters() if p.requires_grad])

    @cached_property
    def weighs_tensors(self) -> bool:
        """Whether sketches are weighted: where every client is known to train with an optimiser of Adam's kind."""
        s = self.settings
        if s.tensor_weights == "none" or s.privacy is not None or self.optimizer is None or len(self.model.sizes) < 2:
            return False
        ours = all(isinstance(client, Client) and client.train is None for client in looked_at(self.clients))
        return ours and adaptive(self._made_optimizer)

    def _participants(self, privacy: Privacy | None) -> Sequence[Participant]:
        """One for each client: all of a list now, those of other sequences when they are asked for."""
        at_once = isinstance(self.clients, list | tuple)
        if not self.batched:
            made = OnDemand(len(self.clients), lambda place: self._one(place, self.clients[place]))
            return list(made) if at_once else made
        self._weights = OnDemandTable(len(self.clients), lambda place: self._data(place).weight)
        data: Sequence[ClientData] = OnDemand(len(self.clients), self._data)
        data = list(data) if at_once else data
        sample = data[0].x[:2], data[0].y[:2]
        try_model(self.model, self.loss, sample, self.clients)
        seen = {kind_of(*sample)}
        for one in looked_at(data):  # a model may take examples of several lengths
            if (kind := kind_of(one.x, one.y)) not in seen:
                seen.add(kind)
                try_model(self.model, self.loss, (one.x[:2], one.y[:2]), (), first=one.client)
        return tensor_clients(data, make_engine(self.model, sample, privacy=privacy), self.work, privacy=privacy)

    def one(self, place: int, privacy: Privacy | None = None) -> Participant:
        """The first client alone, under another number: what trains in a process of its own, by the loop."""
        client = self.clients[0]
        if not self.batched or not isinstance(client, Client):
            return self._one(place, client)
        data = self._tensors(place, client)
        try_model(self.model, self.loss, (data.x[:2], data.y[:2]), self.clients, first=place)
        engine = LoopEngine(self.model, privacy.step if privacy else None)
        return tensor_clients([data], engine, self.work, privacy=privacy)[0]

    def _sizes(self) -> Mapping[int, float]:
        """The weights that are known before anybody trains; what a user's own loop returns is a claim."""
        if self.batched and not isinstance(self.clients, list | tuple):
            return self._weights
        if not isinstance(self.clients, list | tuple):
            return {}
        known = {participant.client: getattr(participant, "weight", None) for participant in self.participants}
        return {client: float(weight) for client, weight in known.items() if weight is not None}

    def _data(self, place: int) -> ClientData:
        """A client, made; its weight is noted, or it would be made again for that alone."""
        data = self._tensors(place, self.clients[place])
        self._weights.note(place, data.weight)
        return data

    def _tensors(self, place: int, client: Client | Participant) -> ClientData:
        device = self.device
        if not isinstance(client, Client) or not is_tensors(client):
            raise InputError(f"clients[{place}] is {client!r}; clients[0] is made of tensors, and so must all be")
        if len(client.y) == 0:
            raise InputError(f"client {place} has no data; leave it out")
        return ClientData(place, client.data.to(device), client.y.to(device), weight=client.weight or 0.0)

    def _one(self, place: int, client: Client | Participant) -> Participant:
        check_kind(place, client)
        if not isinstance(client, Client):
            return client
        if client.train is not None:
            return TrainClient(place, self.model, function=client.train, seed=self.settings.seed)
        if self.loss is None:
            raise InputError("a client with data needs loss=...: loss(output, y), or loss(model, batch)")
        eta = self.settings.eta_local
        data = torch.utils.data.TensorDataset(client.data, client.y) if client.has_tensors else client.data
        return StepsClient(
            place,
            self.model,
            data=data,
            loss=batch_loss(self.loss),
            work=self.work,
            optimizer=self.optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=eta)),
            weight=client.weight,
            keep_optimizer=client.keep_optimizer,
            **({} if client.collate is None else {"collate": client.collate}),
        )

    @property
    def sizes(self) -> list[int]:
        """Examples of each client; 1 where its loop is its own, and only whole clients can be protected."""
        return [len(c.y) if isinstance(c, Client) and c.has_tensors else 1 for c in self.clients]

    def privacy(self, rounds: int, *, clients: int | None = None) -> Privacy | None:
        """The calibrated mechanism and its ledger; ``clients`` is N where not all of them are here."""
        s = self.settings
        if s.privacy is None:
            return None
        by_example = s.privacy.unit == "example"
        if by_example and not self.batched:
            raise PrivacyError(
                "privacy of single examples needs clients made of tensors, Client(x, y), a loss(output, y) and plain "
                "gradient steps (no optimizer, no kept state); for other clients protect whole clients: "
                'SketchClip(unit="client", ...)'
            )
        sizes = self.sizes if clients is None or by_example else [1] * clients
        attendance = Attendance(fraction=s.fraction, seed=s.seed)
        shape = RunShape(
            sizes=sizes,
            batch=s.batch_size,
            steps=s.local_steps,
            rounds=rounds,
            fraction=s.fraction,
            codec=s.wire.codec,
            cohort=lambda t: attendance.cohort(t, len(sizes)),
            per_example=PerExample(self.model.module, self.model.batch_loss) if by_example else None,
        )
        private = plan_private_run(shape, s.privacy)
        return Privacy(ledger=private.ledger, **{private.place: private.mechanism})  # type: ignore[arg-type]

    def evaluate(self, w: Tensor) -> dict[str, float]:
        """The user's metrics at w."""
        if self.measure is None:
            return {}
        if self.settings.statistics != "local":
            return self._metrics(w)
        rows = []
        for participant in self.participants:
            if isinstance(participant, ModuleClient):
                with participant.own_statistics():
                    rows.append(self._metrics(w))
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else self._metrics(w)

    def _metrics(self, w: Tensor) -> dict[str, float]:
        module = self.model.load(w).eval()
        with torch.no_grad():
            metrics = self.measure(module) if self.measure else {}
        module.train()
        if not isinstance(metrics, Mapping):
            raise InputError(f"evaluate(model) must return metrics by name, a dict, got {type(metrics).__name__}")
        if taken := sorted(RESERVED & {str(name) for name in metrics}):
            raise InputError(
                f"evaluate(model): a round's row has {', '.join(taken)} already; give the metric another name"
            )
        return {str(name): float(value) for name, value in metrics.items()}

    def result(self, federation: Federation, rows: list[dict[str, Any]], rounds: int, folder: Path | None) -> Run:
        """The run as the user gets it; the module holds the trained weights."""
        module = self.model.load(federation.model_vector)
        module.train(self.was_training)
        n, ledger = len(self.clients), federation.privacy.ledger if federation.privacy else None
        ended = "rounds" if federation.t >= rounds else "budget" if federation.spent_budget else "callback"
        return Run(
            model=module,
            history=rows,
            rounds=federation.t,
            bytes_up=sum(row["bytes_up"] for row in rows) / n,
            bytes_down=sum(row["bytes_down"] for row in rows) / n,
            epsilon=ledger.epsilon() if ledger else None,
            delta=self.settings.privacy.delta if self.settings.privacy else None,
            digest=federation.digest(),
            stopped_by=ended,
            folder=folder,
            clients=self.participants,
        )
