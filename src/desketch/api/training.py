"""federate: a whole run in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from torch import Tensor, nn

from desketch.api.client import Client
from desketch.api.parties import Evaluate, Parties, Settings
from desketch.api.run import Run
from desketch.core.files import sealed_json, sealed_yaml, write_durably
from desketch.core.locks import sole_writer
from desketch.core.strict import strict
from desketch.core.tree import pack_tensors
from desketch.errors import ConfigError, DesketchError, InputError
from desketch.fed.client import Participant
from desketch.fed.module_client import MakeOptimizer
from desketch.fed.optimizers import check_momentum
from desketch.fed.robust import Rule, parse_rule
from desketch.fed.rounds import Federation, Observer, Observers, RoundRecord, run
from desketch.fed.turnout import Turnout
from desketch.privacy.settings import PrivacySettings
from desketch.run.folder import Every, RunFolder
from desketch.run.progress import Progress
from desketch.wire import Wire

__all__ = ["federate"]

Callback = Callable[[RoundRecord], Any] | Observer


def federate(
    model: nn.Module,
    clients: Sequence[Client | Participant],
    *,
    rounds: int,
    loss: Callable[..., Tensor] | None = None,
    local_steps: int = 20,
    batch_size: int | None = 32,
    eta_local: float = 0.1,
    optimizer: MakeOptimizer | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    wire: Wire | None = None,
    privacy: PrivacySettings | None = None,
    server_optimizer: str = "momentum",
    eta_global: float | Literal["auto"] = "auto",
    momentum: float | None = None,
    client_momentum: float | Literal["auto"] = "auto",
    tensor_weights: Literal["auto", "none"] = "auto",
    average: int | Literal["all"] = 10,
    fraction: float = 1.0,
    statistics: Literal["refuse", "local"] = "refuse",
    robust: str | Rule | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | Literal["auto"] = "auto",
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> Run:
    """Train ``model`` over ``clients`` for ``rounds`` rounds; the model is trained in place and is ``run.model``.

    Args:
        model: any module whose trainable parameters are float32; frozen ones stay as they are.
        clients: `Client` objects, or anything with an id ``client`` and ``update(w, t) -> (delta, weight)``; a list, or
            any sequence with ``len`` and ``clients[c]``, whose members are then made when they are asked and must be
            of one kind.
        rounds: T.
        loss: ``loss(output, y)`` for batches (x, y), or ``loss(model, batch)``, whose first parameter is ``model``.
        local_steps: K, the optimiser steps of a client in a round.
        batch_size: examples of a local step, for tensors and Datasets; None takes all of them.
        eta_local: the step size of plain gradient descent, which is what clients do without ``optimizer``.
        optimizer: ``optimizer(parameters)`` makes the local torch optimiser.
        evaluate: ``evaluate(model)`` returns metrics by name; it is called after every ``evaluate_every``-th round.
        evaluate_every: rounds between evaluations.
        wire: family, compression and codecs; default `Wire()`.
        privacy: `PerStep` or `SketchClip`; None means none.
        server_optimizer: sgd, momentum, nesterov, adam or amsgrad.
        eta_global: the server's step size, or "auto".
        momentum: beta of the server optimiser; default: 0 with client momentum, then momentum and nesterov are sgd,
            else 0.5 under the automatic step and 0.9 without.
        client_momentum: clients send the running mean of their updates with this beta, in (0, 1); 0 for each update as
            it is; "auto": 0.8 or 0.65 where all clients are asked in every round and take at most 5 or 20 plain
            gradient steps, and their means together fit into 256 MB.
        tensor_weights: "auto" weighs the tensors in the sketch by the second moments of the clients' optimisers, where
            all have them (Adam's kind) and there is no privacy; "none" does not.
        average: evaluate and return the mean of the last n rounds' weights; "all" for all, 1 for the last alone.
        fraction: the share of the clients asked in a round.
        statistics: "local" lets every client keep its own running statistics (BatchNorm); metrics are then means over
            the clients' models, and `run.model` has the statistics that ``model`` came with.
        robust: how updates are averaged when some clients may lie: a rule of `desketch.fed.robust` or its text, such as
            "rfa" or "krum:num_malicious_nodes=4"; default: a bound on norms, "none" for the plain mean.
        seed: of the public key, shuffles and dropout; never of privacy noise.
        out: a folder for metrics, checkpoints, the privacy ledger, the model and report.html; None writes nothing.
        resume: go on from what ``out`` holds, bit for bit and from its weights, not from those that ``model`` came
            with, or start there if it holds nothing.
        checkpoint_every: rounds between checkpoints; "auto": 10, and where one takes over a second, 20 times as long as
            it took.
        callbacks: functions of every round's `RoundRecord`, or `Observer` objects, which can stop the run.
        progress: show a progress bar; default: when the standard error is a terminal.

    Example:
        >>> import torch, desketch as ds
        >>> x, y = torch.randn(80, 3), torch.randn(80, 1)
        >>> clients = [ds.Client(x[c::4], y[c::4]) for c in range(4)]
        >>> run = ds.federate(torch.nn.Linear(3, 1), clients, loss=torch.nn.functional.mse_loss, rounds=2,
        ...                   wire=ds.Wire(compression=1, codec="f32"))
        >>> run.rounds, run.stopped_by, len(run.history)
        (2, 'rounds', 2)

    """
    _check(rounds=rounds, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every, local_steps=local_steps)
    _check_kinds(wire, privacy, average, seed)
    check_momentum(server_optimizer, momentum)
    if not torch.is_grad_enabled():
        raise InputError(
            "federate trains, which needs gradients: call it outside of torch.no_grad() and inference_mode()"
        )
    settings = Settings(
        local_steps=local_steps,
        batch_size=batch_size,
        eta_local=eta_local,
        wire=wire or Wire(),
        privacy=privacy,
        server_optimizer=server_optimizer,
        eta_global=eta_global,
        momentum=momentum,
        client_momentum=client_momentum,
        tensor_weights=tensor_weights,
        average=average,
        fraction=fraction,
        seed=seed,
        statistics=statistics,
        robust=None if robust is None else parse_rule(robust).spec,
    )
    if resume and out is None:
        raise ConfigError("resume=True needs out=FOLDER, where the interrupted run is")
    parties = Parties(model, clients, settings, loss=loss, optimizer=optimizer, evaluate=evaluate)
    federation = parties.federation(rounds=rounds, evaluate_every=evaluate_every)
    watch = Observers(*(_observer(callback) for callback in callbacks))
    folder = None if out is None else Path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError(f"out is a folder, got the file {folder}; choose another name")
    with sole_writer(folder, seconds=1.0):
        return _drive(federation, parties, watch, folder, rounds, resume, checkpoint_every, progress)


def _drive(
    federation: Federation,
    parties: Parties,
    watch: Observer,
    path: Path | None,
    rounds: int,
    resume: bool,
    checkpoint_every: Every,
    progress: bool | None,
) -> Run:
    kept, turnout = _Rows(), Turnout()
    observers = [kept, turnout, watch]
    if path is not None:
        folder = RunFolder(
            path,
            federation,
            identity=parties.identity,
            checkpoint_every=checkpoint_every,
            config=sealed_yaml(yaml.safe_dump(parties.describe(rounds), sort_keys=False)),
        )
        folder.resume() if resume else folder.start()
        kept.rows = list(folder.rows)
        observers.insert(0, folder)
    with Progress(rounds, done=federation.t, rows=kept.rows, show=progress) as bar:
        run(federation, rounds=rounds, observer=Observers(*observers, bar))
    if path is not None:
        folder.checkpoint()
    turnout.check(answers=federation.privacy is None)
    result = parties.result(federation, kept.rows, rounds, path)
    if path is not None:
        write_durably(path / "model.safetensors", pack_tensors(parties.model.unflatten(federation.model_vector)))
        write_durably(path / "summary.json", sealed_json(strict(result.summary()), indent=2))
        if kept.rows:
            from desketch.report import write_report  # it draws plots: not before they are wanted

            try:
                write_report(path)
            except DesketchError as error:  # the result is there all the same
                warnings.warn(f"there is no report.html: {error}", stacklevel=3)
    return result


def _check(**counts: int | str) -> None:
    """Numbers of rounds and steps."""
    for name, value in counts.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and int(value) >= 1) and not (name == "checkpoint_every" and value == "auto"):
            raise ConfigError(f"{name} is a whole number and at least 1, got {value!r}")


def _check_kinds(wire: object, privacy: object, average: object, seed: object) -> None:
    if not isinstance(wire, Wire | None):
        raise ConfigError(f"wire is a desketch.Wire(...), got {type(wire).__name__}")
    if not isinstance(privacy, PrivacySettings | None):
        raise ConfigError(
            f"privacy is a desketch.PerStep(...) or a desketch.SketchClip(...), got {type(privacy).__name__}"
        )
    if not (isinstance(average, int) and average >= 1) and average not in ("all", "local"):
        raise ConfigError(f"average is a whole number of rounds, at least 1, or 'all', got {average!r}")
    if not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed is a whole number and not negative, got {seed!r}")


class _Rows(Observer):
    """Keeps every round's row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_round(self, record: RoundRecord) -> None:
        self.rows.append(record.row())


class _Call(Observer):
    """A function as an observer."""

    def __init__(self, function: Callable[[RoundRecord], Any]) -> None:
        self.function = function

    def on_round(self, record: RoundRecord) -> None:
        self.function(record)


def _observer(callback: Callback) -> Observer:
    if isinstance(callback, Observer):
        return callback
    if not callable(callback):
        raise InputError(f"a callback is a function of a RoundRecord, or an Observer, got {type(callback).__name__}")
    return _Call(callback)
