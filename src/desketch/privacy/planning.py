"""From the words of a configuration to a calibrated mechanism and its ledger.

A noise multiplier that is not given is calibrated so that all T rounds just fit the budget; one that is given is used
as it is, and the budget, if any, ends the run early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desketch.errors import InputError, PrivacyError
from desketch.privacy.cautions import warn_of_weak_privacy
from desketch.privacy.events import EVERYBODY, Event
from desketch.privacy.mechanisms import (
    Mechanism,
    NoisySteps,
    SketchClipClients,
    SketchClipClientsShared,
    SketchClipExamples,
)
from desketch.privacy.noise import Entropy, OsEntropy, SeededNoiseNotPrivate
from desketch.privacy.per_example import PerExample
from desketch.privacy.run import Releases, RunLedger, calibrated, planned_epsilon
from desketch.privacy.settings import PrivacySettings

__all__ = ["PrivateRun", "RunShape", "plan_private_run"]


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """What a mechanism must know of a run: sizes of the clients' data, batch, K, T, who attends, what is sent."""

    sizes: Sequence[int]
    batch: int | None
    steps: int
    rounds: int
    fraction: float
    codec: str
    cohort: Callable[[int], Sequence[int]]
    per_example: PerExample | None  # not needed where whole clients are protected


@dataclass(frozen=True)
class PrivateRun:
    """A mechanism, the place in a round where it goes (``step``, ``examples`` or ``sketch``), and the run's ledger."""

    mechanism: Mechanism
    place: str
    ledger: RunLedger


def plan_private_run(shape: RunShape, settings: PrivacySettings) -> PrivateRun:
    """Build and calibrate the mechanism; refuse combinations that would promise what they do not keep."""
    kind = _KINDS.get((settings.mechanism, settings.unit))
    if kind is None:
        raise InputError(f"no mechanism {settings.mechanism!r} protects one {settings.unit!r}; known: {sorted(_KINDS)}")
    seed, epsilon, delta = settings.not_private_seed, settings.epsilon, settings.delta
    entropy: Entropy = OsEntropy() if seed is None else SeededNoiseNotPrivate(seed)
    common: dict[str, Any] = {"clip": settings.clip, "entropy": entropy}
    place, build, releases = kind(shape, common, getattr(settings, "noise_by", "server"))
    z = settings.noise_multiplier
    if z is None:
        assert epsilon is not None
        probe = build(1.0)
        z = calibrated(
            lambda z: releases(build(z)),
            unit=probe.unit,
            adjacency=probe.adjacency,
            epsilon=epsilon,
            delta=delta,
            rounds=shape.rounds,
        )
    built = build(z)
    if not entropy.not_private:
        entropy.check()  # before anything is released
        planned = epsilon or planned_epsilon(
            releases(built), unit=built.unit, adjacency=built.adjacency, delta=delta, rounds=shape.rounds
        )
        units = len(shape.sizes) if built.unit == "client" else sum(shape.sizes)
        warn_of_weak_privacy(unit=built.unit, units=units, delta=delta, epsilon=planned, stacklevel=5)
    ledger = RunLedger(
        releases(built),
        claim=built.claim,
        unit=built.unit,
        delta=delta,
        budget=epsilon,
        not_private=entropy.not_private,
    )
    return PrivateRun(built, place, ledger)


_Plan = tuple[str, Callable[[float], Any], Callable[[Any], Releases]]


def _per_step(shape: RunShape, common: Mapping[str, Any], noise_by: str) -> _Plan:
    example = {**common, "batch": _batch(shape), "per_example": shape.per_example}
    return "step", lambda z: NoisySteps(noise_multiplier=z, **example), lambda m: _by_client(shape, m)


def _sketch_clip_examples(shape: RunShape, common: Mapping[str, Any], noise_by: str) -> _Plan:
    if shape.steps != 1:
        raise PrivacyError(
            f"sketch-clip at the example level covers K = 1 local step, got {shape.steps}; set local_steps to 1, or "
            "use per-step noise"
        )
    example = {**common, "batch": _batch(shape), "per_example": shape.per_example}
    return "examples", lambda z: SketchClipExamples(noise_multiplier=z, **example), lambda m: _by_client(shape, m)


def _sketch_clip_clients(shape: RunShape, common: Mapping[str, Any], noise_by: str) -> _Plan:
    kinds = {"server": SketchClipClients, "clients": SketchClipClientsShared}
    if noise_by not in kinds:
        raise InputError(f"noise is added by one of {', '.join(kinds)}, got {noise_by!r}")
    if noise_by == "clients" and shape.codec != "f32":
        raise PrivacyError(
            f"noise shared out over clients needs messages that are not rounded (codec f32), got {shape.codec}: a sum "
            "of rounded messages is not covered; use codec f32 or noise_by server"
        )
    cohort = {**common, "sampling_rate": shape.fraction, "clients": len(shape.sizes)}
    everybody: Callable[[Any], Releases] = lambda m: lambda t: {EVERYBODY: m.event()}  # noqa: E731
    return "sketch", lambda z: kinds[noise_by](noise_multiplier=z, **cohort), everybody


def _by_client(shape: RunShape, mechanism: NoisySteps | SketchClipExamples) -> Releases:
    """Every client that attends round t spends its own event; who attends is public."""
    events = [mechanism.event(examples=n, steps=shape.steps) for n in shape.sizes]

    def releases(t: int) -> dict[str, Event]:
        return {str(client): events[client] for client in shape.cohort(t)}

    return releases


def _batch(shape: RunShape) -> int:
    if shape.batch is None:
        raise InputError("example-level privacy needs an expected batch size; set batch_size")
    smallest = min(shape.sizes)
    if shape.batch > smallest:
        raise InputError(
            f"a batch of {shape.batch} was asked of a client with {smallest} examples; lower batch_size to at most "
            f"{smallest}, or deal the data out more evenly"
        )
    return shape.batch


_KINDS: Mapping[tuple[str, str], Callable[[RunShape, Mapping[str, Any], str], _Plan]] = {
    ("per-step", "example"): _per_step,
    ("sketch-clip", "example"): _sketch_clip_examples,
    ("sketch-clip", "client"): _sketch_clip_clients,
}
