"""FetchSGD: momentum and error feedback carried inside a count sketch at the server; no client state.

Rothchild et al., "FetchSGD: communication-efficient federated learning with sketching", ICML 2020.  With one
count-sketch table S for the whole run, clients send S(Δw_c), and the server keeps

    U = rho U + mean of sketches,   E = E + U,   Δ = top-k of the unsketched E,   E = E - S(Δ),

where the cells that Δ touches are set to zero in both E and U (the paper's error and momentum masking).  The k heavy
hitters are broadcast; the step size multiplies them at the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from desketch import wire
from desketch.baselines.channel import FramedChannel, weighted_mean
from desketch.baselines.compressor import check_length, finite
from desketch.baselines.countsketch_table import CountSketchTable
from desketch.baselines.sparse import TopK
from desketch.errors import InputError
from desketch.fed.channel import ServerStep
from desketch.fed.update import Update
from desketch.keys import Key

__all__ = ["FetchSGDChannel"]


class FetchSGDChannel(FramedChannel):
    """A table of ``rows x columns`` floats up, k heavy hitters down."""

    def __init__(
        self,
        *,
        d: int,
        rows: int,
        columns: int,
        k: int,
        key: Key,
        run: int = 0,
        momentum: float = 0.9,
        agreed: Mapping[int, float] | None = None,
    ) -> None:
        if not 0 <= momentum < 1:
            raise InputError(f"momentum must be in [0, 1), got {momentum}")
        super().__init__(name="fetchsgd", d=d, key=key, run=run, agreed=agreed)
        self.momentum = momentum
        self._table = CountSketchTable(d=d, rows=rows, columns=columns, key=key.fold_in("fetchsgd"))
        self._top = TopK(d=d, k=k)
        self._U = torch.zeros(rows, columns)
        self._E = torch.zeros(rows, columns)

    def encode_updates(
        self, t: int, deltas: Tensor, *, clients: Sequence[int], weights: Sequence[float]
    ) -> list[bytes]:
        """S(Δw_c) in f32."""
        for client, delta in zip(clients, deltas, strict=True):
            finite(f"the update of client {client}", delta)
        tables = self._table.sketch(deltas).numpy().astype("<f4")
        return [
            self.update_frame(t, client, weight, table.tobytes())
            for table, client, weight in zip(tables, clients, weights, strict=True)
        ]

    def aggregate(self, t: int, frames: Mapping[int, bytes]) -> ServerStep:
        """Accumulate in the sketch, send the heavy hitters, forget what was sent."""
        values, weights, refused = self.open_updates(t, frames)
        if not values:
            return ServerStep(None, (), refused)
        self._U = self.momentum * self._U + weighted_mean(values, weights)
        self._E = self._E + self._U
        payload = self._top.encode(self._table.estimate(self._E), key=self.key, state={})
        sent = self._table.sketch(self._top.decode(payload, key=self.key)) != 0
        self._E[sent] = 0
        self._U[sent] = 0
        return ServerStep(wire.shorten(self.header(t, "broadcast"), payload), tuple(values), refused)

    def decode_broadcast(self, t: int, frame: bytes) -> Update:
        """The k-sparse step."""
        _, payload = wire.open_short(frame, self.header(t, "broadcast"))
        u = self._top.decode(bytes(payload), key=self.key)
        return Update(u, float(torch.linalg.vector_norm(u, dtype=torch.float64)), self.d)

    def decode_update(self, t: int, client: int, payload: bytes) -> Tensor:
        """One client's table."""
        rows, columns = self._U.shape
        check_length("count-sketch", payload, 4 * rows * columns)
        table = torch.from_numpy(np.frombuffer(payload, dtype="<f4").astype(np.float32)).view(rows, columns)
        return finite("a count-sketch payload", table)

    def state_dict(self) -> dict[str, Any]:
        """Both accumulators."""
        return {"U": self._U, "E": self._E}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._U, self._E = state["U"].clone(), state["E"].clone()
