"""The client's half of a round: an update of whatever kind, then one frame.

    Δ_c, p_c = update(w, t)                      K local steps, or any training loop of the user's own
    finite?  (running mean)  s_c = R_t Δ_c  (clip, noise)  quantise  frame                       `encode_update`

A client is anything that keeps the first line, a `Participant`.  `encode_updates` does the second for a whole cohort:
it is what every engine calls, in process, over Flower and without a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import isfinite
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from desketch.core.vectors import lengths
from desketch.errors import InputError
from desketch.fed.aggregation import LARGEST
from desketch.fed.channel import Channel, SketchChannel
from desketch.fed.client_momentum import ClientMomentum, along_last_step
from desketch.sketches import Sketch

__all__ = ["Crew", "Participant", "SketchingParticipant", "encode_update", "encode_updates"]

NOT_FINITE = "update: not finite; look for NaN in its data, or lower the step size of the local training"


@runtime_checkable
class Participant(Protocol):
    """One client: anything that turns the current model into an update and a weight.

    Optional attributes: ``crew``, a `Crew` that trains several participants at once; ``mechanism``, what makes its
    updates private; ``state_dict`` and ``load_state_dict`` for what it keeps between rounds; ``moments``, its
    optimiser's mean second moment of every tensor after the last update.
    """

    @property
    def client(self) -> int:
        """The client's id, 0..N-1."""

    def update(self, w: Tensor, t: int) -> tuple[Tensor, float]:
        """Δ_c(t), the change of w (d,), and its weight in the mean."""


@runtime_checkable
class SketchingParticipant(Participant, Protocol):
    """A client whose privacy mechanism makes the sketch itself, from clipped sketches of single examples."""

    def sketched_update(self, R: Sketch, w: Tensor, t: int) -> tuple[Tensor, float]:
        """R Δ_c(t), (b,), and its weight."""


class Crew(Protocol):
    """Trains several participants at once, with the same result (to rounding) as one by one."""

    def updates(self, w: Tensor, participants: Sequence[Any], t: int) -> tuple[Tensor, list[float]]:
        """The rows Δ_c(t), (n, d), and the weights.

        A crew may also have ``chunks``, the same as an iterator of (members, rows, weights): rows are then encoded as
        they are made, and no more of them are in memory than were trained together.
        """


def encode_updates(
    participants: Sequence[Participant],
    channel: Channel,
    w: Tensor,
    *,
    t: int,
    memory: ClientMomentum | None = None,
    last_step: Tensor | None = None,
) -> tuple[dict[int, bytes], dict[int, str]]:
    """Round t of clients whose replica is at w: their frames, and why others have none.

    With a ``memory`` they send the means of their updates; ``last_step`` is that of their replica.
    """
    frames: dict[int, bytes] = {}
    refused: dict[int, str] = {}
    for members, rows, weights in _updates(participants, channel, w, t):
        finite = [length <= LARGEST for length in lengths(rows)]  # NaN is not
        refused |= {p.client: NOT_FINITE for p, ok in zip(members, finite, strict=True) if not ok}
        kept = [i for i, ok in enumerate(finite) if ok]
        if not kept:
            continue
        good, who = rows if all(finite) else rows[kept], [members[i].client for i in kept]
        shares = [weights[i] for i in kept]
        beside = _beside(channel, t, [members[i] for i in kept])
        if isinstance(channel, SketchChannel) and isinstance(members[0], SketchingParticipant):
            if memory or channel.along:
                raise InputError("a client that gives only sketches has no update to average: no client_momentum")
            sent = channel.encode_sketches(t, good, clients=who, weights=shares)
        elif isinstance(channel, SketchChannel) and channel.along:
            along = along_last_step(good, last_step, b=channel.b)
            means = memory.means(t, good, clients=who) if memory else good
            sent = channel.encode_updates(t, means, clients=who, weights=shares, along=along, **beside)
        else:
            good = memory.means(t, good, clients=who) if memory else good
            sent = channel.encode_updates(t, good, clients=who, weights=shares, **beside)
        frames |= zip(who, sent, strict=True)
        del rows, good  # before the next are made: their memory is used again
    order = [p.client for p in participants]
    return {c: frames[c] for c in order if c in frames}, {c: refused[c] for c in order if c in refused}


def encode_update(
    participant: Participant,
    channel: Channel,
    w: Tensor,
    *,
    t: int,
    memory: ClientMomentum | None = None,
    last_step: Tensor | None = None,
) -> bytes:
    """`encode_updates` of one client; an update that is refused raises."""
    frames, refused = encode_updates([participant], channel, w, t=t, memory=memory, last_step=last_step)
    for client, reason in refused.items():
        raise InputError(f"client {client}, round {t}: {reason}")
    return frames[participant.client]


def _beside(channel: Channel, t: int, members: Sequence[Participant]) -> dict[str, Any]:
    """What clients say of their second moments, in the rounds where it is due."""
    weights = channel.tensor_weights if isinstance(channel, SketchChannel) else None
    if weights is None or not weights.due(t):
        return {}
    return {"moments": [weights.say(getattr(member, "moments", None)) for member in members]}


_Rows = tuple[Sequence[Participant], Tensor, list[float]]


def _updates(participants: Sequence[Participant], channel: Channel, w: Tensor, t: int) -> Iterator[_Rows]:
    """Everybody's update: a crew's together or in chunks, the others' one by one."""
    for crew, together in groupby(participants, key=lambda p: getattr(p, "crew", None)):
        members = list(together)
        if crew is not None and hasattr(crew, "chunks"):
            yield from crew.chunks(w, members, t)
            continue
        if crew is not None:
            rows, weights = crew.updates(w, members, t)
            yield members, rows, weights
            continue
        for participant in members:
            row, weight = _own(participant, channel, w, t)
            yield [participant], row[None], [float(weight)]


def _own(participant: Participant, channel: Channel, w: Tensor, t: int) -> tuple[Tensor, float]:
    """One client's update; what its own code raises says whose it is."""
    try:
        if isinstance(participant, SketchingParticipant):
            return _sketched(participant, channel, w, t)
        row, weight = participant.update(w, t)
    except Exception as error:
        error.add_note(f"raised by client {participant.client} in round {t}")
        raise
    _check(participant, row, weight, d=w.numel())
    return row, weight


def _sketched(participant: SketchingParticipant, channel: Channel, w: Tensor, t: int) -> tuple[Tensor, float]:
    if not isinstance(channel, SketchChannel):
        raise InputError(f"sketches of single examples need a sketch channel, got {channel.name}; use noise per step")
    return participant.sketched_update(channel.sketch_at(t), w, t)


def _check(participant: Participant, row: Any, weight: Any, *, d: int) -> None:
    name = f"client {participant.client}: update(w, t)"
    if not isinstance(row, Tensor) or row.shape != (d,) or row.dtype != torch.float32:
        got = f"{row.dtype} {tuple(row.shape)}" if isinstance(row, Tensor) else type(row).__name__
        raise InputError(f"{name} must return the change of w, a float32 tensor of shape ({d},), got {got}")
    if not isinstance(weight, int | float) or not (isfinite(weight) and weight > 0):
        raise InputError(f"{name} must return a positive finite weight beside the change, got {weight!r}")
