"""Agreement: what all parties of a run share, small enough to be sent to a client on first contact.

It decides every R_t, codec and optimiser step, so two parties with equal agreements and equal broadcasts have equal
replicas.  Its JSON names the run, on every engine: frames of another agreement are refused by their run id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

from torch import Tensor

from desketch.errors import ConfigError, InputError, RunError
from desketch.fed.channel import SketchChannel
from desketch.fed.client_momentum import ClientMomentum, client_beta
from desketch.fed.mechanism import SketchMechanism
from desketch.fed.optimizers import ServerOptimizer, make_optimizer
from desketch.fed.replica import Replica
from desketch.keys import Key
from desketch.wire import Wire, run_id

__all__ = ["Agreement", "WrappedApp"]


@dataclass(frozen=True, kw_only=True)
class WrappedApp:
    """What a client needs to know to train through somebody else's app (Flower's `sketch_mod`).

    ``arrays`` and ``config`` name the records the app finds in its message; ``train`` and ``evaluate`` are what the
    config record holds; ``weighted_by`` is the metric that weighs an update.  Without ``metrics`` none are sent.
    """

    arrays: str = "arrays"
    config: str = "config"
    weighted_by: str = "num-examples"
    train: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    metrics: bool = True


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The public facts of a run; ``names`` and ``shapes`` lay the model's arrays out in one vector w.

    ``robust`` is how the server averages (`desketch.fed.robust`); None: the default of the run's kind.
    ``client_momentum`` is beta of the clients' running means (`desketch.fed.client_momentum`), 0 for none.
    """

    name: str
    seed: int
    names: Sequence[str]
    shapes: Sequence[Sequence[int]]
    wire: Wire = field(default_factory=Wire)
    optimizer: str = "momentum"
    eta_global: float | Literal["auto"] = "auto"
    beta: float | None = None
    client_momentum: float = 0.0
    robust: str | None = None
    app: WrappedApp = field(default_factory=WrappedApp)
    known_weights: bool = False  # every party knows every client's weight, e.g. by the configuration: none is sent
    rounds: int | None = None  # T of a private run: clients answer no more; a run without privacy may be extended

    def __post_init__(self) -> None:
        """Settle the wire: a compression or the b that it stands for make the same run."""
        b = self.wire.sketch_size(self.d)
        settled = replace(self.wire, b=b, compression=self.d / b, codec_down=self.wire.down)
        object.__setattr__(self, "wire", settled)
        client_beta(self.client_momentum)

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
        try:
            return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()
        except TypeError as error:
            raise InputError(f"an agreement travels as JSON, and {error}; leave it out of the configuration") from None

    @classmethod
    def from_json(cls, data: bytes) -> Agreement:
        """Read `to_json`; anything else is refused."""
        try:
            facts = json.loads(data)
            _check_types(facts)
            return cls(**{**facts, "wire": Wire(**facts["wire"]), "app": WrappedApp(**facts["app"])})
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, ConfigError) as error:
            raise RunError(
                f"an agreement of {len(data)} bytes cannot be read: {error}; upgrade the older side"
            ) from None

    def channel(
        self, mechanism: SketchMechanism | None = None, *, sizes: Mapping[int, float] | None = None
    ) -> SketchChannel:
        """The channel of this run; ``sizes`` is what the server knows of the clients' weights."""
        return SketchChannel(
            d=self.d,
            key=Key(self.seed),
            wire=self.wire,
            run=self.run,
            mechanism=mechanism,
            robust=self.robust,
            sizes=sizes,
            agreed=sizes if self.known_weights else None,
            along=self.client_momentum > 0 and self.eta_global == "auto",
        )

    def make_optimizer(self) -> ServerOptimizer:
        """A fresh server optimiser."""
        return make_optimizer(
            self.optimizer, eta_global=self.eta_global, beta=self.beta, client_momentum=self.client_momentum
        )

    def memory(self) -> ClientMomentum | None:
        """Where clients keep the sums of their updates, if they send means."""
        return ClientMomentum(self.client_momentum) if self.client_momentum else None

    def replica(self, w0: Tensor, channel: SketchChannel) -> Replica:
        """A replica at version 0."""
        return Replica(w0, optimizer=self.make_optimizer(), channel=channel)


def _check_types(facts: dict[str, Any]) -> None:
    """Refuse what JSON can hold and an agreement cannot."""
    counts = [size for shape in facts["shapes"] for size in shape]
    if not all(type(number) is int and number >= 0 for number in counts) or type(facts["seed"]) is not int:
        raise TypeError("shapes and seed are whole numbers")
    if not all(type(name) is str for name in [facts["name"], facts["optimizer"], *facts["names"]]):
        raise TypeError("names are text")
    if len(facts["names"]) != len(facts["shapes"]):
        raise ValueError(f"{len(facts['names'])} names for {len(facts['shapes'])} shapes")
