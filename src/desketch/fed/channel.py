"""Channel: how updates cross the wire, both ways; everything that differs between two methods is a Channel.

`SketchChannel` is the paper's enc_t / dec_t: the client sends R_t Δw_c, the server averages sketches without ever
leaving R^b, and everyone de-sketches the broadcast with the SAME R_t = draw(family, key.fold_in("round", t)), as in
`lem:update_rule`.  (Algorithm 1 prints dec_t for a sketch made with enc_{t-1}: a slip of an index.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from desketch import wire
from desketch.core.vectors import norm
from desketch.errors import ConfigError, InputError, PrivacyError, WireError
from desketch.fed.aggregation import Aggregator, Judgement
from desketch.fed.mechanism import SketchMechanism
from desketch.fed.robust import Rule, rule_of
from desketch.fed.signal import Signal, measure_signal
from desketch.fed.tensor_weights import TensorWeights
from desketch.fed.update import Update
from desketch.keys import Key
from desketch.privacy.mechanisms import SketchClipClientsShared
from desketch.sketches import Sketch, Weighted, draw
from desketch.wire import Wire
from desketch.wire.rows import Beside

__all__ = ["Channel", "ServerStep", "SketchChannel", "Wire"]


@dataclass(frozen=True)
class ServerStep:
    """What a server made of a round; ``broadcast`` is None when no update could be used, ``refused`` says why.

    ``limited`` says whose update a robust rule held back, and how; ``void`` why a round with updates came to nothing.
    """

    broadcast: bytes | None
    participants: tuple[int, ...]
    refused: Mapping[int, str] = field(default_factory=dict)
    limited: Mapping[int, str] = field(default_factory=dict)
    void: str | None = None
    signal: Signal | None = None  # measured on sketches that carry no noise of a mechanism; private runs do not tell it


class Channel(ABC):
    """Both directions of a round; client state, where a method needs it, is kept by client id."""

    name: str
    d: int

    @abstractmethod
    def encode_updates(
        self, t: int, deltas: Tensor, *, clients: Sequence[int], weights: Sequence[float]
    ) -> list[bytes]:
        """Client side: one frame for each row of ``deltas (n, d)``."""

    @abstractmethod
    def aggregate(self, t: int, frames: Mapping[int, bytes]) -> ServerStep:
        """Server side: decode strictly, refuse and name bad frames, average, encode the broadcast."""

    @abstractmethod
    def decode_broadcast(self, t: int, frame: bytes) -> Update:
        """Every replica, the server's too: what the server optimiser is fed with."""

    def in_full(self, t: int, client: int, frame: bytes) -> bytes:
        """A client's frame in the form that explains itself, for files."""
        return frame

    def learn(self, t: int, update: Update) -> None:  # noqa: B027 - most channels learn nothing
        """A replica took round t's update in: what later rounds' coding depends on is kept here."""

    def state_dict(self) -> dict[str, Any]:
        """State to checkpoint: a tree of tensors and JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; a channel that keeps no state has nothing to load."""
        if state:
            raise InputError(f"channel {self.name} keeps no state, got {sorted(state)}; resume with the same method")


class SketchChannel(Channel):
    """Sketch, quantise, frame; the server averages decoded sketches."""

    name = "sketch"

    def __init__(
        self,
        *,
        d: int,
        key: Key,
        run: int = 0,
        mechanism: SketchMechanism | None = None,
        wire: Wire | None = None,
        robust: str | Rule | None = None,
        sizes: Mapping[int, float] | None = None,
        along: bool = False,
        agreed: Mapping[int, float] | None = None,
        tensor_weights: TensorWeights | None = None,
        **settings: Any,
    ) -> None:
        """Carry vectors of d numbers; ``settings`` are those of a `Wire`, given here in place of one.

        ``robust`` is how the server averages, ``sizes`` the weights that no client may exceed.  With ``along`` every
        message has one more number, of the raw update along the last step (`desketch.fed.client_momentum`).  ``agreed``
        are the weights that both ends know, so that frames need not say them (default: 1 for everybody).
        ``tensor_weights`` says where the noise of the sketch goes.
        """
        if wire is not None and settings:
            raise ConfigError(f"give a Wire, or its settings, not both; got also {', '.join(settings)}")
        self.wire = wire or Wire(**settings)
        self.d, self.b, self.key, self.family = d, self.wire.sketch_size(d), key, self.wire.family
        self.run, self.mechanism = run, mechanism
        if along and isinstance(mechanism, SketchClipClientsShared):
            raise PrivacyError(
                "noise shared out over clients travels in whole steps of f32, the number along the last step in one "
                "byte; set client_momentum to 0, or let the server add the noise"
            )
        if tensor_weights and mechanism:
            raise PrivacyError("second moments are facts about the data; a private run has no weights a tensor")
        self.robust, self.along, self.tensor_weights = robust, along, tensor_weights
        self.agreed = {} if mechanism else agreed or {}
        self.aggregator = Aggregator(rule_of(robust, private_mean=mechanism is not None), sizes=sizes)
        self._drawn: tuple[int, Sketch] | None = None
        self.sketch_at(0)  # a family or b that cannot be drawn is refused here, not in round 1
        self.header(0, "update"), self.header(0, "broadcast")

    def sketch_at(self, t: int) -> Sketch:
        """R_t, the same for every party."""
        if self._drawn is None or self._drawn[0] != t:
            self._drawn = (
                t,
                draw(self.family, d=self.d, b=self.b, key=self.key.fold_in("round", t), **self.wire.options),
            )
        return self._drawn[1]

    def weighted_at(self, t: int) -> Sketch | Weighted:
        """R_t between D⁻¹ and D, where tensors have weights."""
        weights = self.tensor_weights
        D = weights.at(t) if weights else None
        return Weighted(self.sketch_at(t), D, weights.sizes) if weights and D else self.sketch_at(t)

    def encode_updates(
        self,
        t: int,
        deltas: Tensor,
        *,
        clients: Sequence[int],
        weights: Sequence[float],
        along: Sequence[float] | None = None,
        moments: Sequence[Sequence[float]] | None = None,
    ) -> list[bytes]:
        """enc_t: R_t Δw_c as a frame."""
        sketches = self.weighted_at(t).sketch(deltas)
        return self.encode_sketches(t, sketches, clients=clients, weights=weights, along=along, moments=moments)

    def encode_sketches(
        self,
        t: int,
        sketches: Tensor,
        *,
        clients: Sequence[int],
        weights: Sequence[float],
        along: Sequence[float] | None = None,
        moments: Sequence[Sequence[float]] | None = None,
    ) -> list[bytes]:
        """Frames of sketches that are already made; under client-level DP they are clipped and weigh alike.

        ``moments`` are what `TensorWeights.say` makes of each client's, in the rounds where they are due.
        """
        rows = sketches if along is None else torch.cat([sketches, sketches.new_tensor(along)[:, None]], dim=1)
        if self.mechanism:  # the number along the last step is one more row of the sketch, and clipped with it
            rows, weights = self.mechanism.guard(rows), [1.0] * len(clients)
        key = self.key.fold_in("rounding")
        rounding = [key.fold_in(client, t) for client in clients]
        values, extra = rows[:, : self.b], rows[:, self.b :].double().cpu().numpy()
        return wire.encode_batch(
            values,
            self.header(t, "update"),
            weights=weights,
            rounding=rounding,
            extra=extra if moments is None else np.concatenate([extra, np.asarray(moments)], axis=1),
            agreed=[self.agreed.get(client, 1.0) for client in clients],
        )

    def aggregate(self, t: int, frames: Mapping[int, bytes]) -> ServerStep:
        """The mean of the decoded sketches, encoded again; the server never sees more than R^b."""
        batch = self.decode_updates(t, dict(sorted(frames.items())))  # nobody gains by being first
        rows = Beside(batch.rows, batch.extra[:, :1]) if self.along else batch.rows
        weights = torch.from_numpy(batch.weights)
        judged = self.aggregator.judge(batch.senders, rows, weights, found=len(batch.refused))
        y, refused = judged.y, {**batch.refused, **judged.refused}
        if self.mechanism:  # the sensitivity is that of this sum: it takes everybody's sketch, clipped, and no rule's
            kept = [i for i, sender in enumerate(batch.senders) if sender not in refused]
            y = self.mechanism.average(torch.from_numpy(rows.chosen(kept).all()))
        if y is None:
            return ServerStep(None, (), refused, void=judged.void)
        try:
            frame = self.encode_broadcast(t, y, beside=self._medians(t, batch, judged))
        except WireError as error:
            return ServerStep(None, (), refused, judged.limited, void=f"broadcast: {error}")
        signal = None if self.mechanism else self._signal(batch, judged)
        return ServerStep(frame, judged.participants, refused, judged.limited, signal=signal)

    def _signal(self, batch: wire.Batch, judged: Judgement) -> Signal | None:
        rows, weights = batch.rows, torch.from_numpy(batch.weights)
        if len(judged.participants) < len(batch.senders):
            counted = np.flatnonzero(np.isin(batch.senders, judged.participants)).tolist()
            return measure_signal(rows.chosen(counted), weights[counted], d=self.d)
        if self.along:  # what was judged has one more number
            return measure_signal(rows, weights, d=self.d)
        return measure_signal(rows, weights, d=self.d, norms=judged.norms, mean=judged.mean)

    def state_dict(self) -> dict[str, Any]:
        """What the robust rule remembers."""
        return self.aggregator.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.aggregator.load_state_dict(state)

    def decode_updates(self, t: int, frames: Mapping[int, bytes]) -> wire.Batch:
        """The sketches and weights of the frames that can be used, and why the others cannot."""
        return wire.decode_batch(frames, self.header(t, "update"), agreed=self.agreed)

    def in_full(self, t: int, client: int, frame: bytes) -> bytes:
        """A client's update as a full frame."""
        return wire.lengthen(frame, self.header(t, "update"), agreed=self.agreed.get(client, 1.0))

    def encode_broadcast(self, t: int, y: Tensor, *, beside: Sequence[float] = ()) -> bytes:
        """The frame that carries the mean sketch, and what goes beside it, to everyone."""
        header, rounding = self.header(t, "broadcast"), self.key.fold_in("rounding", "server", t)
        extra = [*y[self.b :].tolist(), *beside]
        return wire.encode(y[: self.b], header, rounding=rounding, extra=extra, agreed=1.0)

    def decode_broadcast(self, t: int, frame: bytes) -> Update:
        """dec_t: u = R_tᵀ y with the R_t that made y."""
        expect = self.header(t, "broadcast")
        y = torch.from_numpy(wire.decode(frame, expect, agreed=1.0)[1])
        extra = wire.decode_extra(frame, expect, agreed=1.0).tolist() if expect.beside else []
        along = extra.pop(0) if self.along else None
        return Update(self.weighted_at(t).desketch(y), norm(y), self.b, along, self.wire.bits, tuple(extra))

    def learn(self, t: int, update: Update) -> None:
        """The weights of later rounds."""
        if self.tensor_weights and update.moments:
            self.tensor_weights.learn(t, update.moments)

    def _medians(self, t: int, batch: wire.Batch, judged: Judgement) -> list[float]:
        """What the clients that counted say of their tensors, where it is due."""
        if not self.tensor_weights or not self.tensor_weights.due(t):
            return []
        counted = np.isin(batch.senders, judged.participants)
        return self.tensor_weights.merge(batch.extra[counted, int(self.along) :])

    def _due(self, t: int) -> int:
        """How many numbers of `TensorWeights` travel in round t."""
        return self.tensor_weights.due(t) if self.tensor_weights else 0

    def header(self, t: int, kind: str) -> wire.Header:
        """What a frame of round t must say; ``kind`` is "update" or "broadcast"."""
        codec = self.wire.down if kind == "broadcast" else self.wire.codec
        key = self.key.fold_in("round", t)
        return wire.Header(
            run=self.run,
            round=t,
            family=self.family,
            d=self.d,
            b=self.b,
            key=key,
            codec=codec,
            kind=kind,
            tiny=int(self.along),
            extra=self._due(t),
        )
