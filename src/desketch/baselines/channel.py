"""CompressedChannel: any compressor up, any compressor down, in the same frames as the sketches.

The client sends C_up(Δw_c), the server averages what it decoded and broadcasts C_down(mean).  Where a compressor is
wrapped in `ErrorFeedback`, each sender's residual is kept here by client id, as the clients themselves would on disk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from desketch import wire
from desketch.baselines.compressor import Compressor, finite
from desketch.errors import WireError
from desketch.fed.aggregation import Aggregator, Judgement
from desketch.fed.channel import Channel, ServerStep
from desketch.fed.update import Update
from desketch.keys import Key
from desketch.wire.rows import Decoded

__all__ = ["CompressedChannel", "FramedChannel"]


class FramedChannel(Channel):
    """Frames, keys and weighted averaging, shared by all baselines; a method supplies what the payloads mean."""

    def __init__(self, *, name: str, d: int, key: Key, run: int = 0, agreed: Mapping[int, float] | None = None) -> None:
        """Frames are short ones, as those of the sketches; ``agreed`` are the weights that both ends know."""
        self.name, self.d, self.key, self.run = name, d, key, run
        self.agreed = dict(agreed or {})

    def message_key(self, t: int, kind: str, sender: int) -> Key:
        """The public key of one message: independent between rounds, directions and senders."""
        return self.key.fold_in("round", t, kind, sender)

    def header(self, t: int, kind: str, *, weight: float = 1.0) -> wire.Header:
        """What both ends expect of a frame of round t; the sender is known from the transport."""
        return wire.Header(
            run=self.run,
            round=t,
            family="none",
            d=self.d,
            b=self.d,
            key=self.key,
            codec="opaque",
            kind=kind,
            weight=weight,
        )

    def update_frame(self, t: int, client: int, weight: float, payload: bytes) -> bytes:
        """A client's payload in its frame."""
        return wire.shorten(self.header(t, "update", weight=weight), payload, agreed=self.agreed.get(client, 1.0))

    def in_full(self, t: int, client: int, frame: bytes) -> bytes:
        """A client's update as a full frame."""
        return wire.lengthen(frame, self.header(t, "update"), agreed=self.agreed.get(client, 1.0))

    def open_updates(
        self, t: int, frames: Mapping[int, bytes]
    ) -> tuple[dict[int, Tensor], dict[int, float], dict[int, str]]:
        """Decode every client's frame: values, weights, and why the others were refused."""
        expect = self.header(t, "update")
        values: dict[int, Tensor] = {}
        weights: dict[int, float] = {}
        refused: dict[int, str] = {}
        for client, frame in frames.items():
            try:
                header, payload = wire.open_short(frame, expect, agreed=self.agreed.get(client, 1.0))
                values[client] = self.decode_update(t, client, bytes(payload))
                weights[client] = header.weight
            except WireError as error:
                refused[client] = str(error)
        return values, weights, refused

    @abstractmethod
    def decode_update(self, t: int, client: int, payload: bytes) -> Tensor:
        """What the server averages."""


class CompressedChannel(FramedChannel):
    """``up`` at the clients, the weighted mean and ``down`` at the server."""

    def __init__(
        self,
        *,
        name: str,
        up: Compressor,
        down: Compressor,
        key: Key,
        run: int = 0,
        agreed: Mapping[int, float] | None = None,
        aggregator: Aggregator | None = None,
    ) -> None:
        """Make the channel; with an ``aggregator`` the server averages by its robust rule."""
        super().__init__(name=name, d=up.d, key=key, run=run, agreed=agreed)
        self.up, self.down, self.aggregator = up, down, aggregator
        self._clients: dict[int, dict[str, Tensor]] = {}
        self._server: dict[str, Tensor] = {}

    def encode_updates(
        self, t: int, deltas: Tensor, *, clients: Sequence[int], weights: Sequence[float]
    ) -> list[bytes]:
        """C_up of each row, with each client's own memory."""
        return [
            self._encode_update(t, delta, client, weight)
            for delta, client, weight in zip(deltas, clients, weights, strict=True)
        ]

    def aggregate(self, t: int, frames: Mapping[int, bytes]) -> ServerStep:
        """The weighted mean of what arrived, compressed again for the way down."""
        values, weights, refused = self.open_updates(t, frames)
        if not values:
            return ServerStep(None, (), refused)
        if self.aggregator is None:
            judged = Judgement(weighted_mean(values, weights), tuple(values))
        else:
            rows, claims = torch.stack(list(values.values())), torch.tensor(list(weights.values()), dtype=torch.float64)
            judged = self.aggregator.judge(list(values), Decoded(rows.numpy()), claims, found=len(refused))
        refused |= judged.refused
        if judged.y is None:
            return ServerStep(None, (), refused, judged.limited, judged.void)
        payload = self.down.encode(judged.y, key=self.message_key(t, "broadcast", 0), state=self._server)
        frame = wire.shorten(self.header(t, "broadcast"), payload)
        return ServerStep(frame, judged.participants, refused, judged.limited)

    def decode_broadcast(self, t: int, frame: bytes) -> Update:
        """C_down(mean), and its length for an automatic step."""
        _, payload = wire.open_short(frame, self.header(t, "broadcast"))
        u = self.down.decode(bytes(payload), key=self.message_key(t, "broadcast", 0))
        return Update(u, float(torch.linalg.vector_norm(u, dtype=torch.float64)), self.d)

    def decode_update(self, t: int, client: int, payload: bytes) -> Tensor:
        """C_up of one client."""
        return self.up.decode(payload, key=self.message_key(t, "update", client))

    def state_dict(self) -> dict[str, Any]:
        """The memory of every sender."""
        return {
            "clients": {str(client): dict(state) for client, state in self._clients.items()},
            "server": dict(self._server),
            **({"robust": self.aggregator.state_dict()} if self.aggregator else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._clients = {int(c): {k: v.clone() for k, v in s.items()} for c, s in state["clients"].items()}
        self._server = {k: v.clone() for k, v in state["server"].items()}
        if self.aggregator:
            self.aggregator.load_state_dict(state["robust"])

    def _encode_update(self, t: int, delta: Tensor, client: int, weight: float) -> bytes:
        finite(f"the update of client {client}", delta)
        state = self._clients.setdefault(client, {})
        payload = self.up.encode(delta, key=self.message_key(t, "update", client), state=state)
        return self.update_frame(t, client, weight, payload)


def weighted_mean(values: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """Σ weight x / Σ weight."""
    total = sum(weights.values())
    mean = torch.zeros_like(next(iter(values.values())))
    for client, x in values.items():
        mean.add_(x, alpha=weights[client] / total)
    return mean
