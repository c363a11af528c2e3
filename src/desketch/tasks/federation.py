"""From a configuration to the parties of Algorithm 1: data dealt out, model, channel and optimiser built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from desketch.core.on_demand import OnDemand, OnDemandTable
from desketch.errors import ConfigError
from desketch.fed import (
    Attendance,
    Channel,
    ClientData,
    Federation,
    FlatModel,
    LocalWork,
    Participant,
    Privacy,
    SketchChannel,
    make_average,
    make_engine,
    tensor_clients,
)
from desketch.fed.iterates import LocalIterates
from desketch.fed.local import Visit
from desketch.mesh.gossip import GossipMesh
from desketch.mesh.rounds import Failures, Mesh
from desketch.mesh.topology import build_topology
from desketch.mesh.tree import TreeMesh
from desketch.privacy.per_example import PerExample
from desketch.privacy.planning import RunShape, plan_private_run
from desketch.session.agreement import Agreement
from desketch.tasks.config import RunConfig
from desketch.tasks.data import Task, load_task
from desketch.tasks.models import build_model
from desketch.tasks.partitions import partition

__all__ = ["Setup", "prepare"]


@dataclass(frozen=True)
class Setup:
    """What every party of a run derives from its configuration alone."""

    config: RunConfig
    task: Task
    model: FlatModel
    clients: Sequence[ClientData]

    @property
    def work(self) -> LocalWork:
        """The local steps of every client."""
        c = self.config
        return LocalWork(steps=c.local_steps, eta=c.eta_local, batch=c.batch_size, seed=c.seed)

    def agreement(self) -> Agreement:
        """What the parties share, in one process or in many; it names the run."""
        c = self.config
        return Agreement(
            name=c.identity(),
            seed=c.seed,
            names=self.model.names,
            shapes=self.model.shapes,
            wire=c.wire,
            optimizer=c.server_optimizer,
            eta_global=c.eta_global,
            beta=c.momentum,
            client_momentum=c.client_beta(d=self.model.d),
            rounds=c.rounds if c.dp else None,
            robust=c.robust,
            known_weights=True,
        )

    def channel(self, privacy: Privacy | None = None) -> SketchChannel:
        """The sketch channel of this run; its frames carry the run's id."""
        return self.agreement().channel(privacy.sketch if privacy else None, sizes=self.sizes)

    @property
    def sizes(self) -> Mapping[int, float]:
        """The weight of every client, which the server knows as well as they do."""
        return OnDemandTable(len(self.clients), lambda c: self.clients[c].weight)

    def privacy(self) -> Privacy | None:
        """The mechanism of the configuration, calibrated, and its ledger; None for a run without privacy."""
        c = self.config
        if c.dp is None:
            return None
        shape = RunShape(
            sizes=[len(client.y) for client in self.clients],
            batch=c.batch_size,
            steps=c.local_steps,
            rounds=c.rounds,
            fraction=c.fraction,
            codec=c.codec,
            cohort=lambda t: self.attendance.cohort(t, len(self.clients)),
            per_example=PerExample(self.model.module, self.model.batch_loss),
        )
        private = plan_private_run(shape, c.dp.settings)
        return Privacy(ledger=private.ledger, **{private.place: private.mechanism})  # type: ignore[arg-type]

    @property
    def attendance(self) -> Attendance:
        """Who comes, by the run's seed."""
        c = self.config
        return Attendance(fraction=c.fraction, dropout=c.dropout, straggler=c.straggler, seed=c.seed)

    def participants(self, privacy: Privacy | None, visit: Visit | None = None) -> Sequence[Participant]:
        """The clients, trained by the engine that fits the model, privately if ``privacy`` says so."""
        sample = self.clients[0].x[:2], self.clients[0].y[:2]
        engine = make_engine(self.model, sample, privacy=privacy, visit=visit)
        return tensor_clients(self.clients, engine, self.work, privacy=privacy)

    def federation(self, *, channel: Channel | None = None, privacy: Privacy | None = None) -> Federation:
        """The parties, ready for `desketch.fed.run`; another channel makes it another method.

        The configuration's own privacy is applied unless a mechanism is given in its place; it is never left out.
        """
        c = self.config
        privacy = privacy or self.privacy()
        average = make_average(c.average, d=self.model.d)
        visit = average.visit if isinstance(average, LocalIterates) else None
        return Federation(
            clients=self.participants(privacy, visit),
            channel=channel or self.channel(privacy),
            optimizer=self.agreement().make_optimizer(),
            w0=self.model.flatten(),
            attendance=self.attendance,
            average=average,
            privacy=privacy,
            memory=self.agreement().memory() if channel is None else None,
            evaluate=self.evaluate,
            evaluate_every=c.evaluate_every,
        )

    def mesh(self) -> Mesh:
        """The nodes of a run without a server, ready for `desketch.mesh.rounds.run_mesh`."""
        c = self.config
        topology = build_topology(str(c.topology), len(self.clients), seed=c.seed)
        kind = partial(GossipMesh, hops=c.gossip_steps) if c.protocol == "gossip" else TreeMesh
        return kind(
            clients=self.participants(None),
            topology=topology,
            channel=self.channel(),
            optimizer=self.agreement().make_optimizer(),
            w0=self.model.flatten(),
            average=make_average(c.average, d=self.model.d),
            failures=Failures(nodes=c.node_failures, edges=c.edge_failures, seed=c.seed),
            evaluate=self.evaluate,
            evaluate_every=c.evaluate_every,
        )

    def evaluate(self, w: Tensor) -> dict[str, float]:
        """Loss and metrics on the test set, and the first metric on the validation set when there is one."""
        task, name = self.task, self.task.goal.metric.name
        metrics = task.goal.evaluate(self.model, w, task.x_test, task.y_test)
        if len(task.y_val):
            metrics[f"val_{name}"] = task.goal.evaluate(self.model, w, task.x_val, task.y_val)[name]
        return metrics


def prepare(config: RunConfig) -> Setup:
    """Load the data, deal them out, build the model: all from the configuration, alike for every party."""
    _check_device(config.device)
    task = load_task(config.task, **config.task_options)
    parts = partition(task, config.partition, config.clients, config.seed)
    model = FlatModel(build_model(config.model, task, seed=config.seed).to(config.device), task.goal.loss)
    moved = {name: getattr(task, name).to(config.device) for name in ("x_val", "y_val", "x_test", "y_test")}
    weight = 1.0 if config.weighting == "uniform" else 0.0  # 0: by examples
    # a client's examples side by side: a client is two views, made when it is asked for
    x, y = (whole[parts.order].to(config.device) for whole in (task.x_train, task.y_train))
    starts = parts.starts

    def client(c: int) -> ClientData:
        own = slice(starts[c], starts[c + 1])
        return ClientData(c, x[own], y[own], weight=weight)

    clients = OnDemand(config.clients, client)
    return Setup(config, replace(task, **moved), model, clients)


def _check_device(name: str) -> None:
    """Refuse a device that torch cannot compute on here; it says so in many ways."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used here ({reason}); use cpu, or one this torch can") from None
