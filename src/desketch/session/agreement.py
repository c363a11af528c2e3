"""Agreement: what all parties of a run share, small enough to be sent to a client on first contact.

It decides every R_t, codec and optimiser step, so two parties with equal agreements and equal broadcasts have equal
replicas.  Its JSON names the run: frames of a run with any other agreement are refused by their run id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

from torch import Tensor

from desketch.errors import RunError
from desketch.fed.channel import SketchChannel, Wire
from desketch.fed.mechanism import SketchMechanism
from desketch.fed.optimizers import ServerOptimizer, make_optimizer
from desketch.fed.replica import Replica
from desketch.keys import Key
from desketch.wire import run_id

__all__ = ["Agreement"]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The public facts of a run; ``names`` and ``shapes`` lay the model's arrays out in one vector w."""

    name: str
    seed: int
    names: Sequence[str]
    shapes: Sequence[Sequence[int]]
    b: int
    family: str = "srht"
    options: Mapping[str, Any] = field(default_factory=dict)
    codec: str = "sign1"
    codec_down: str = "sign1"
    optimizer: str = "sgd"
    eta_global: float | Literal["auto"] = "auto"
    beta: float | None = None
    weighted_by: str = "num-examples"  # the metric that weighs an update, for wrapped apps
    config: Mapping[str, Any] = field(default_factory=dict)  # what wrapped apps find in their config record

    @cached_property
    def d(self) -> int:
        """The length of w."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers of each array."""
        return [prod(shape) for shape in self.shapes]

    @cached_property
    def run(self) -> int:
        """The run's 32-bit id."""
        return run_id(self.to_json())

    def to_json(self) -> bytes:
        """The canonical form."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Agreement:
        """Read `to_json`; anything else is refused."""
        try:
            return cls(**json.loads(data))
        except (TypeError, ValueError) as error:
            raise RunError(
                f"an agreement of {len(data)} bytes cannot be read: {error}; upgrade the older side"
            ) from None

    def channel(self, mechanism: SketchMechanism | None = None) -> SketchChannel:
        """The channel of this run."""
        return SketchChannel(
            d=self.d,
            key=Key(self.seed),
            wire=Wire(family=self.family, b=self.b, codec=self.codec, codec_down=self.codec_down, options=self.options),
            run=self.run,
            mechanism=mechanism,
        )

    def make_optimizer(self) -> ServerOptimizer:
        """A fresh server optimiser."""
        return make_optimizer(self.optimizer, eta_global=self.eta_global, beta=self.beta)

    def replica(self, w0: Tensor, channel: SketchChannel) -> Replica:
        """A replica at version 0."""
        return Replica(w0, optimizer=self.make_optimizer(), channel=channel)
