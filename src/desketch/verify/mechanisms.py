"""The shipped mechanisms, staged for an audit: a worst-case unit, present or absent, through the whole round.

Every scene runs the code a training run would: clip, sketch, noise, encode, decode, average, encode, decode.  The
unit's contribution is a thousand clips long and lies in the row space of R, where noise hides it least; nobody else
contributes anything.  The adversary knows R and the unit, so its best score of the update ``u = R^T y`` is ``<u, v>``.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from desketch.core.flat import FlatModel
from desketch.fed.channel import SketchChannel
from desketch.fed.client import encode_update
from desketch.fed.engine import LoopEngine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.mechanism import Privacy
from desketch.fed.tensor_client import tensor_clients
from desketch.keys import Key
from desketch.privacy.accountants import epsilon
from desketch.privacy.audit import AuditResult, audit_scores, one_run_bound
from desketch.privacy.events import Gaussian, Ledger
from desketch.privacy.mechanisms import Mechanism, NoisySteps, SketchClipClients, SketchClipExamples
from desketch.privacy.noise import OsEntropy
from desketch.privacy.per_example import PerExample
from desketch.privacy.run import RunLedger

__all__ = ["SCENES", "ClientScene", "ExampleScene", "Scene", "StepScene", "audit_scene", "one_run_audit"]

_LENGTH = 1000.0  # of the unit's contribution, in clips


@dataclass(frozen=True, kw_only=True)
class Scene(ABC):
    """One release, end to end; ``make(t)`` builds the mechanism from nothing but the public round t."""

    make: Callable[[int], Mechanism]
    d: int = 64
    b: int = 16
    codec: str = "f32"
    family: str = "srht"
    key: Key = field(default_factory=lambda: Key(2023))

    def scores(self, draws: int, *, present: bool, replay: bool) -> npt.NDArray[np.float64]:
        """Scores of ``draws`` releases; with ``replay`` the adversary subtracts its own re-run of the absent world.

        A re-run starts from the same public state: the key, the round and every global seed.  Against noise that any
        of them determines, nothing of the noise is left.
        """
        v = self.unit()
        found = np.empty(draws)
        for t in range(draws):
            u = self._seeded(t, v if present else torch.zeros_like(v))
            found[t] = float(u @ v) - (float(self._seeded(t, torch.zeros_like(v)) @ v) if replay else 0.0)
        return found

    def unit(self) -> Tensor:
        """v: the unit's contribution, of unit length, in the row space of R."""
        v = self.channel.sketch_at(0).desketch(torch.eye(self.b)[0])
        return v / v.norm()

    def _seeded(self, t: int, v: Tensor) -> Tensor:
        torch.default_generator.manual_seed(t)
        np.random.seed(t)
        random.seed(t)
        return self.release(self.make(t), v)

    @cached_property
    def channel(self) -> SketchChannel:
        """The channel of all draws: they share round 0 and its R, so that v stays the worst case."""
        return SketchChannel(d=self.d, b=self.b, key=self.key, family=self.family, codec=self.codec, robust="none")

    @abstractmethod
    def release(self, mechanism: Mechanism, v: Tensor) -> Tensor:
        """Run one round whose only contribution is along v; return the update everybody sees."""


class ClientScene(Scene):
    """One client among silent others; the server adds the noise, or all share it."""

    def release(self, mechanism: Mechanism, v: Tensor) -> Tensor:
        """Encode every client's update, step the server, decode the broadcast."""
        assert isinstance(mechanism, SketchClipClients)
        channel = self.channel
        channel.mechanism = mechanism
        deltas = torch.zeros(mechanism.clients, self.d)
        deltas[0] = v * (_LENGTH * mechanism.clip)
        clients = list(range(mechanism.clients))
        frames = channel.encode_updates(0, deltas, clients=clients, weights=[1.0] * len(clients))
        step = channel.aggregate(0, dict(zip(clients, frames, strict=True)))
        assert step.broadcast is not None
        return channel.decode_broadcast(0, step.broadcast).vector


class _OneClientScene(Scene):
    """One example of one client, whose loss is linear: its gradient is the example."""

    place = "step"

    def release(self, mechanism: Mechanism, v: Tensor) -> Tensor:
        """Run the client's half of the round, then the server's."""
        model = FlatModel(linear_model(self.d), lambda outputs, y: outputs.mean())
        x = torch.stack([v * (-_LENGTH * mechanism.clip), torch.zeros(self.d)])
        data = ClientData(0, x, torch.zeros(2, dtype=torch.long))
        channel = self.channel
        spends_nothing = RunLedger(lambda t: {}, claim=mechanism.claim, unit=mechanism.unit, delta=0.5)
        privacy = Privacy(ledger=spends_nothing, **{self.place: mechanism})  # type: ignore[arg-type]
        work = LocalWork(steps=1, eta=1.0, batch=2)
        (participant,) = tensor_clients([data], LoopEngine(model, privacy.step), work, privacy=privacy)
        step = channel.aggregate(0, {0: encode_update(participant, channel, torch.zeros(self.d), t=0)})
        assert step.broadcast is not None
        return channel.decode_broadcast(0, step.broadcast).vector


class StepScene(_OneClientScene):
    """Noise per local step, before the sketch."""

    place = "step"


class ExampleScene(_OneClientScene):
    """Clipped sketches of single examples."""

    place = "examples"


def linear_model(d: int) -> nn.Module:
    """Return ``x -> <w, x>``; with the mean output as loss, the gradient of example x is x."""
    return nn.Linear(d, 1, bias=False)


def per_example(d: int) -> PerExample:
    """Return per-example gradients of that loss."""
    return PerExample(linear_model(d), lambda outputs, y: outputs.mean())


def _clients(clip: float, z: float, d: int) -> Mechanism:
    return SketchClipClients(clip=clip, noise_multiplier=z, sampling_rate=1.0, clients=3)


def _examples(clip: float, z: float, d: int) -> Mechanism:
    return SketchClipExamples(clip=clip, noise_multiplier=z, batch=2, per_example=per_example(d))


def _steps(clip: float, z: float, d: int) -> Mechanism:
    return NoisySteps(clip=clip, noise_multiplier=z, batch=2, per_example=per_example(d))


# mechanism and unit -> (scene, builder of the shipped mechanism at full sampling, where a single release is Gaussian)
SCENES: dict[tuple[str, str], tuple[type[Scene], Callable[[float, float, int], Mechanism]]] = {
    ("sketch-clip", "client"): (ClientScene, _clients),
    ("sketch-clip", "example"): (ExampleScene, _examples),
    ("per-step", "example"): (StepScene, _steps),
}


def audit_scene(scene: Scene, *, draws: int, delta: float, confidence: float) -> list[AuditResult]:
    """Let both adversaries attack a scene; together their lower bounds hold with ``confidence``."""
    claimed = epsilon(Ledger("client").plus(Gaussian(scene.make(0).noise_multiplier)), delta)
    found = []
    for adversary, replay in (("projection", False), ("replay of the public state", True)):
        worlds = [scene.scores(draws, present=present, replay=replay) for present in (True, False)]
        found.append(
            audit_scores(
                *worlds,
                claimed_epsilon=claimed,
                delta=delta,
                confidence=1 - (1 - confidence) / 2,
                adversary=adversary,
            )
        )
    return found


def one_run_audit(clip: float, z: float, delta: float, *, canaries: int, confidence: float) -> dict[str, float]:
    """One release with many canary clients, each in by a coin flip; guess the most and the least likely quarter."""
    coins = torch.from_numpy(OsEntropy().uniform(canaries) < 0.5)
    mechanism = SketchClipClients(clip=clip, noise_multiplier=z, sampling_rate=1.0, clients=canaries)
    y = mechanism.average(mechanism.guard(torch.eye(canaries)[coins] * (_LENGTH * clip)))
    order = torch.argsort(y, descending=True)
    quarter = canaries // 4
    correct = int(coins[order[:quarter]].sum()) + int((~coins[order[-quarter:]]).sum())
    bound = one_run_bound(2 * quarter, correct, canaries=canaries, delta=delta, confidence=confidence)
    return {"canaries": canaries, "guesses": 2 * quarter, "correct": correct, "lower_bound": bound}
